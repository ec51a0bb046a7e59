// SPDX-License-Identifier: Apache-2.0
/// @file
/// The control groups that this process is in, and the memory limit that they set.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// This process's place in one hierarchy of control groups: "0::/job" (version 2), or
/// "4:cpu,cpuacct:/job" (version 1) in /proc/self/cgroup.
struct ControlGroup {
    int version = 2;             ///< of the hierarchy: 1 or 2
    std::string controllers;     ///< "cpu,cpuacct"; "" in version 2, which has all of them
    std::filesystem::path path;  ///< within the hierarchy, "/" at its top

    /// Whether this hierarchy may govern `controller`: "memory", "cpu", "cpuset".
    bool has(std::string_view controller) const;
};

/// In the kernel's order, below `root`.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root);

/// The folders in which `controller`'s files of `group` are and those of the groups above it, up to
/// the mount. Inside a container the group's path is often one of the host's and only the mount
/// exists: folders that are not there are left out.
std::vector<std::filesystem::path> folders_of(const ControlGroup& group,
                                              std::string_view controller,
                                              const std::filesystem::path& root);

/// The smallest limit of this process's control group and those above it, version 1 or 2, below
/// `root`; nothing if none is set.
std::optional<std::uint64_t> control_group_memory_limit(const std::filesystem::path& root);

/// How many processes the kernel has ended so far for want of memory in this process's control
/// group, or in the one above it that sets the limit.
std::uint64_t control_group_oom_kills(const std::filesystem::path& root = "/");

/// The first 1 MiB of the file, without white space at the end; "" if it cannot be read.
std::string text_of(const std::filesystem::path& path);

}  // namespace lockstep
