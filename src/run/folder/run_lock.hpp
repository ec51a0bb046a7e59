// SPDX-License-Identifier: Apache-2.0
// One process at a time in a run directory.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// "user@host" of this process.
std::string user_at_host();

/// Locks `path` (created 0600) for as long as the descriptor lives, trying for `wait_s` seconds,
/// and writes a lease into it: who, where, since when, and of which start of which SLURM job. flock
/// belongs to the open file, so the kernel frees it when the holder dies, however it dies. Where
/// the holder is an earlier start of this job it is taken over after `wait_s`: the new incarnation
/// then fences that start's writes. Errors: E404 naming the holder from its lease; E402.
UniqueFd take_run_lock(const fs::path& path, double wait_s);

/// Who holds a run, or held it last.
struct RunHolder {
    bool is_held = false;  ///< its lock is taken, as this host sees it
    bool is_here = false;  ///< the lease names this host
    std::int64_t pid = 0;  ///< 0: there is no lease: nobody has begun, or all was put in order
    std::string host{};
    std::string since{};  ///< UTC
};

/// Who holds the run with the lock file `path`. Tries the lock for a moment, which those who wait
/// for it do not notice. Errors: E202, E402.
RunHolder read_run_holder(const fs::path& path);

/// Empties the lease; the lock itself goes with the descriptor.
void clear_lease(const UniqueFd& lock) noexcept;

}  // namespace lockstep
