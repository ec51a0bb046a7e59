// SPDX-License-Identifier: Apache-2.0
// Limits of the expanded size of a compressed chunk, so that its own claims are not trusted.
#pragma once

#include "lockstep/data/dataset_index.hpp"

#include <cstdint>

namespace lockstep {

/// Largest chunk that went through filters: HDF5's own limit (H5Pset_chunk).
inline constexpr std::uint64_t most_chunk_bytes = 0xffffffff;

/// Returns the most bytes to which a chunk of `stored` bytes can expand, by the formats of its
/// filters. A chunk that announces more is damaged or malicious; this check takes no memory.
std::uint64_t most_expanded(const FilterChain& chain, std::uint64_t stored);

}  // namespace lockstep
