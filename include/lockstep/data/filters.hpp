// SPDX-License-Identifier: Apache-2.0
/// @file
/// HDF5's filters as the chunks of a file that others wrote went through them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The filters that are read. The numbers are HDF5's registered identifiers.
enum class FilterKind : std::uint16_t {
    deflate = 1,
    shuffle = 2,
    fletcher32 = 3,
    lzf = 32000,  ///< h5py's own
    blosc = 32001,
    lz4 = 32004,
    zstd = 32015,
    /// None of HDF5's: numbers that become the field's wider ones, or change their byte order.
    /// Only the first of a chain.
    widening = 65535,
    /// None either: numbers that stand for others, and become f32 (format/unpacking.hpp). Only the
    /// first of a chain, without a widening.
    unpacking = 65534,
};

/// One filter and what undoing it takes.
struct Filter {
    FilterKind kind = FilterKind::deflate;
    std::uint32_t element = 0;  ///< of shuffle: its bytes; of the last two: their code; else 0
    std::vector<std::uint64_t> values = {};  ///< of unpacking: by what; else none
    bool operator==(const Filter&) const = default;
};

/// In the order of writing; reading undoes the last one first. Empty: stored as it is.
using FilterChain = std::vector<Filter>;

/// Whether `kind` is the number of one of HDF5's filters that this build reads.
bool is_known_filter(std::uint64_t kind);

/// Whether `kind` is one that HDF5 has not: of elements that change when they are read.
bool is_own_filter(std::uint64_t kind);

/// "shuffle+deflate"; "none" for an empty chain.
std::string filter_text(const FilterChain& chain);

/// Why a chain cannot be undone: more than one filter that compresses, too many filters, a shuffle
/// of elements without size. "" if it can be.
std::string filter_fault(const FilterChain& chain);

}  // namespace lockstep
