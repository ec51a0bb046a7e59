// SPDX-License-Identifier: Apache-2.0
// Small file systems that only one child process and its children see.
#pragma once

#include "drill/drill_report.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace lockstep {

/// Why no file system could be mounted.
struct MountRefused {
    std::string why;
};

/// Runs `work` in a child with mounts of its own, for which root's rights or unprivileged user
/// namespaces are needed; they go with it. `look` is called ten times a second meanwhile, and may
/// throw: then the child is told to end, too. The report says why it was skipped where the system
/// refuses, also where `work` throws MountRefused. To be called while there is one thread.
FaultReport with_own_mounts(const std::function<FaultReport()>& work,
                            const std::function<void()>& look);

/// Within that: an empty memory file system of `bytes` over the folder `at`. Throws MountRefused.
void mount_small(const std::filesystem::path& at, std::uint64_t bytes);

}  // namespace lockstep
