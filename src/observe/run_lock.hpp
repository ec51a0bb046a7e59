// SPDX-License-Identifier: Apache-2.0
// One process at a time in a run directory.
#pragma once

#include "lockstep/core/files.hpp"

#include <string>

namespace lockstep {

/// "user@host" of this process.
std::string user_at_host();

/// Locks `path` (created 0600) for as long as the descriptor lives, trying for `wait_s` seconds,
/// and writes a lease into it: who, where, since when. flock belongs to the open file, so the
/// kernel frees it when the holder dies, however it dies.
/// Errors: E404 naming the holder from its lease; E402.
UniqueFd take_run_lock(const fs::path& path, double wait_s);

/// Empties the lease; the lock itself goes with the descriptor.
void clear_lease(const UniqueFd& lock) noexcept;

}  // namespace lockstep
