// SPDX-License-Identifier: Apache-2.0
/// @file
/// Starts a child process and waits for its end. process.hpp serves most uses.
#pragma once

#include "lockstep/core/files.hpp"

#include <map>
#include <string>
#include <vector>

#include <signal.h>
#include <sys/types.h>

namespace lockstep {

/// The streams of a child that go through pipes. none: no stream, the child writes where this
/// process does. apart: stdout and stderr, each through its own pipe. output: stdout and stderr
/// through one pipe. both: as output, and stdin. Without a pipe to its stdin a child reads nothing.
enum class ChildPipes { none, apart, output, both };

/// A started child and the pipes to it.
struct Child {
    pid_t pid = -1;   ///< -1: no child was started
    UniqueFd output;  ///< the child's stdout, and its stderr unless that is apart
    UniqueFd errors;  ///< the child's stderr, if it is apart
    UniqueFd input;   ///< the child's stdin
};

/// Starts argv[0], found on PATH; `environment` is added to this process's own. The child leads its
/// own process group and dies with this process. It blocks the `blocked` signals if they are given,
/// else those of this thread. Signals of hold_stop_signals() reach it. Errors: E610.
Child start_child(const std::vector<std::string>& argv,
                  const std::map<std::string, std::string>& environment,
                  ChildPipes pipes,
                  const sigset_t* blocked = nullptr);

/// Waits for the child's end and returns its wait status.
int reap_child(pid_t pid);

}  // namespace lockstep
