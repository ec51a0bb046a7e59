// SPDX-License-Identifier: Apache-2.0
// Rows from many places of memory, side by side.
#pragma once

#include <cstddef>
#include <span>

namespace lockstep {

/// Copies `bytes` from each of `rows` to `to`, end to end. Rows far from each other are fetched
/// into the processor's cache before their turn.
void gather_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to);

}  // namespace lockstep
