// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starting ranks with an mpirun of our own, on this machine or over ssh.
#pragma once

#include "lockstep/core/environment.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Set for ranks whose mpirun was started on a terminal.
inline constexpr const char* live_variable = "LOCKSTEP_ON_TERMINAL";

/// Set for ranks on the machine of the process that supervises their mpirun: its process id.
inline constexpr const char* launcher_variable = "LOCKSTEP_LAUNCHER_PID";

/// What to launch: a program with `words` on `np` ranks.
struct LaunchRequest {
    int np = 1;                      ///< ranks
    bool oversubscribe = false;      ///< more ranks than cores are wanted
    std::vector<std::string> words;  ///< each rank's arguments
    std::filesystem::path folder;    ///< for Open MPI's own files; "": its usual places
    std::filesystem::path program;   ///< what each rank is
    std::string hosts;               ///< "a:4,b:4", over ssh; "": this machine alone
};

/// The mpirun line. Over hosts, `np` 0 is one rank for each slot, and the network is one in which
/// they all reach each other, which is tried, and said in the log. Errors: E601 more ranks than
/// cores, E603 root without Open MPI's leave, E607 (hosts that make no sense, more ranks than
/// slots), E647 (hosts that are not reached).
std::vector<std::string> mpirun_line(const LaunchRequest& request, const Environment& environment);

/// Errors: E610 if `program` is not there, which mpirun would report only by an unusual exit code;
/// E225 if 'ulimit -v' is low and it does not start within, which it could not say itself.
void check_rank_program(const std::filesystem::path& program);

/// Goes on as `program` with `words`; `environment` is added. Returns only by Errors E610, E225.
[[noreturn]] void become_rank(const std::filesystem::path& program,
                              const std::vector<std::string>& words,
                              const std::map<std::string, std::string>& environment = {});

}  // namespace lockstep
