// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reading from a pipe or socket that may stay silent.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace lockstep {

/// Waits until `fd` has bytes, and puts what there is into the front of `out`. Returns how many: 0
/// where the other end is closed; nothing if none came before `deadline_s` (of now_s()).
/// Signals do not end the wait.
std::optional<std::size_t> timed_read(int fd, std::span<std::byte> out, double deadline_s);

}  // namespace lockstep
