// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts ranks with an mpirun of our own, on this machine or over ssh.
#pragma once

#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Set for ranks whose mpirun was started on a terminal.
inline constexpr const char* live_variable = "LOCKSTEP_ON_TERMINAL";

/// Process id of the process that supervises mpirun. Set for ranks on the same machine.
inline constexpr const char* launcher_variable = "LOCKSTEP_LAUNCHER_PID";

/// A launch of a program with `words` on `np` ranks.
struct LaunchRequest {
    int np = 1;                      ///< ranks
    bool oversubscribe = false;      ///< true if more ranks than cores are wanted
    std::vector<std::string> words;  ///< arguments of each rank
    std::filesystem::path folder{};  ///< folder for Open MPI's own files; "": its usual places
    std::filesystem::path program;   ///< program of each rank
    std::string hosts{};             ///< "a:4,b:4", over ssh; "": this machine only
};

/// Returns the mpirun line. With hosts, `np` 0 means one rank for each slot. The network is one in
/// which the hosts are found to reach each other; the log names it. Errors: E601 more ranks than
/// cores, E603 root without Open MPI's permission, E607 (invalid hosts, more ranks than slots),
/// E647 (unreachable hosts).
std::vector<std::string> mpirun_line(const LaunchRequest& request, const Environment& environment);

/// Checks that `program` can start. Errors: E610 if it is missing, which mpirun would report only
/// by an unusual exit code; E225 if it does not start because 'ulimit -v' is low, which it could
/// not report itself.
void check_rank_program(const std::filesystem::path& program);

/// Replaces this process by `program` with `words`; `environment` is added. Does not return.
/// Errors: E610, E225.
[[noreturn]] void become_rank(const std::filesystem::path& program,
                              const std::vector<std::string>& words,
                              const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep
