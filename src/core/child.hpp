// SPDX-License-Identifier: Apache-2.0
// Starting a child process with pipes to it.
#pragma once

#include "lockstep/core/files.hpp"

#include <map>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

enum class ChildInput { nothing, pipe };

struct Child {
    pid_t pid = -1;
    UniqueFd output;  ///< what it writes to stdout and stderr, in order
    UniqueFd input;   ///< to its stdin
};

/// argv[0] is found on PATH; `environment` is added to this process's own. The child leads a
/// process group of its own and dies with this process. Errors: E610.
Child start_child(const std::vector<std::string>& argv,
                  const std::map<std::string, std::string>& environment,
                  ChildInput input);

/// Kills the child's whole group and waits. Returns 128 + SIGKILL.
int end_child(pid_t pid);

}  // namespace lockstep
