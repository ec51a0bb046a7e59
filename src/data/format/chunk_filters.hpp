// SPDX-License-Identifier: Apache-2.0
// Reverses the filters that packed shards do not use: shuffle, fletcher32, lzf, blosc.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// Computes HDF5's fletcher32 (H5_checksum_fletcher32 of H5checksum.c) over 16-bit words, high byte
/// first; an odd last byte counts as a high one.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

/// Returns `stored` without the checksum at its end; an empty span if it is wrong or missing.
std::span<const std::byte> checked_fletcher32(std::span<const std::byte> stored);

/// Reverses HDF5's shuffle filter for elements of `element_bytes`; a rest at the end stays
/// unchanged. The spans have one size.
void unshuffle(std::span<const std::byte> stored,
               std::uint32_t element_bytes,
               std::span<std::byte> raw);

/// Returns the expanded size of an LZF stream by its lengths alone; 0 if cut short.
std::uint64_t lzf_bytes(std::span<const std::byte> stored);

/// Expands an LZF stream into exactly raw.size() bytes. Returns false if it is anything else.
bool decode_lzf(std::span<const std::byte> stored, std::span<std::byte> raw);

/// Returns true if this build has c-blosc (LOCKSTEP_WITH_BLOSC).
bool reads_blosc();

/// Expands a Blosc 1 buffer into exactly raw.size() bytes. Returns false if its header is not that
/// of a whole buffer of these sizes, or if blosc refuses it.
bool decode_blosc(std::span<const std::byte> stored, std::span<std::byte> raw);

/// No chunk that went through filters has more bytes: HDF5's own limit (H5Pset_chunk).
inline constexpr std::uint64_t most_chunk_bytes = 0xffffffff;

/// Most bytes that a chunk of `stored` bytes expands to, by the formats of its filters. What
/// announces more is damaged or made to do harm; finding that out takes no memory.
std::uint64_t most_expanded(const FilterChain& chain, std::uint64_t stored);

}  // namespace lockstep
