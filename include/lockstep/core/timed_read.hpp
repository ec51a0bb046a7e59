// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads from a pipe or socket with a deadline.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace lockstep {

/// Waits until `fd` has bytes and reads what is there into the front of `out`. Returns the number
/// of bytes: 0 if the other end is closed, nothing if none came before `deadline_s` (of now_s()).
/// Signals do not end the wait.
std::optional<std::size_t> timed_read(int fd, std::span<std::byte> out, double deadline_s);

}  // namespace lockstep
