// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starting a child process, and its end. For most uses is process.hpp.
#pragma once

#include "lockstep/core/files.hpp"

#include <map>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

namespace lockstep {

/// What goes through pipes. none: it writes where this process does; apart: its stdout and its
/// stderr, each through a pipe of its own; output: both through one; both: that, and its stdin.
/// Without a pipe to its stdin a child reads nothing.
enum class ChildPipes { none, apart, output, both };

/// A child that was started, and the pipes to it.
struct Child {
    pid_t pid = -1;   ///< -1: none was started
    UniqueFd output;  ///< what it writes to stdout, and to stderr as well unless that is apart
    UniqueFd errors;  ///< what it writes to stderr, if that is apart
    UniqueFd input;   ///< to its stdin
};

/// argv[0] is found on PATH; `environment` is added to this process's own. The child leads a
/// process group of its own and dies with this process. It has `blocked` signals if they are
/// given, else this thread's, but those of hold_stop_signals() reach it. Errors: E610.
Child start_child(const std::vector<std::string>& argv,
                  const std::map<std::string, std::string>& environment,
                  ChildPipes pipes,
                  const sigset_t* blocked = nullptr);

/// Waits for the child's end, and returns its wait status.
int reap_child(pid_t pid);

/// Kills the child's whole group and waits. Returns 128 + SIGKILL.
int end_child(pid_t pid);

}  // namespace lockstep
