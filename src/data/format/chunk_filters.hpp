// SPDX-License-Identifier: Apache-2.0
// Undoes the filters that are no codec of packed shards: shuffle, fletcher32, lzf, blosc.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// HDF5's fletcher32 (H5_checksum_fletcher32 of H5checksum.c): over 16-bit words, high byte first;
/// an odd last byte counts as a high one.
std::uint32_t fletcher32(std::span<const std::byte> bytes);

/// `stored` without the checksum at its end; an empty span if it is wrong or missing.
std::span<const std::byte> checked_fletcher32(std::span<const std::byte> stored);

/// Puts the bytes of elements of `element_bytes` together again that HDF5's shuffle filter has
/// taken apart; what is left over at the end was left as it is. The spans have one size.
void unshuffle(std::span<const std::byte> stored,
               std::uint32_t element_bytes,
               std::span<std::byte> raw);

/// What an LZF stream expands to, by its lengths alone; 0 if it ends in the middle of one.
std::uint64_t lzf_bytes(std::span<const std::byte> stored);

/// Expands an LZF stream into exactly raw.size() bytes; false if it is anything else.
bool decode_lzf(std::span<const std::byte> stored, std::span<std::byte> raw);

/// Whether this build has c-blosc (LOCKSTEP_WITH_BLOSC).
bool reads_blosc();

/// Expands a Blosc 1 buffer into exactly raw.size() bytes. False if its header is not that of a
/// whole buffer of these sizes, or blosc refuses it.
bool decode_blosc(std::span<const std::byte> stored, std::span<std::byte> raw);

/// No chunk that went through filters has more bytes: HDF5's own limit (H5Pset_chunk).
inline constexpr std::uint64_t most_chunk_bytes = 0xffffffff;

/// Most bytes that a chunk of `stored` bytes expands to, by the formats of its filters. What
/// announces more is damaged or made to do harm; finding that out takes no memory.
std::uint64_t most_expanded(const FilterChain& chain, std::uint64_t stored);

}  // namespace lockstep
