// SPDX-License-Identifier: Apache-2.0
// Lock of a run directory: one process at a time, and the names of who writes there.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstdint>
#include <string>

namespace lockstep {

/// Returns "user@host" of this process.
std::string user_at_host();

/// Returns 128 bits from the kernel as 32 hexadecimal digits.
std::string random_run_id();

/// Locks `path` (created 0600) for the lifetime of the descriptor, trying for `wait_s` seconds, and
/// writes a lease into it: user, host, time, and the start of the SLURM job. flock belongs to the
/// open file, so the kernel releases it whenever the holder ends. If the holder is an earlier start
/// of this job, the run is taken over after `wait_s`: the new incarnation then fences that start's
/// writes. Errors: E404 naming the holder from its lease; E402.
UniqueFd take_run_lock(const fs::path& path, double wait_s);

/// The present or last holder of a run.
struct RunHolder {
    bool is_held = false;  ///< its lock is taken, as this host sees it
    bool is_here = false;  ///< the lease names this host
    std::int64_t pid = 0;  ///< 0: no lease: no holder yet, or the last one ended properly
    std::string host{};
    std::string since{};  ///< UTC
};

/// Returns the holder of the run with the lock file `path`. Tries the lock for a moment, which
/// waiting processes do not notice. Errors: E202, E402.
RunHolder read_run_holder(const fs::path& path);

/// Empties the lease; closing the descriptor releases the lock.
void clear_lease(const UniqueFd& lock) noexcept;

}  // namespace lockstep
