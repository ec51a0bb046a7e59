// SPDX-License-Identifier: Apache-2.0
// Gathers rows from many places of memory.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// Copies `bytes` from each of `rows` to `to`, end to end. Distant rows are prefetched into the
/// processor's cache.
void gather_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to);

}  // namespace lockstep
