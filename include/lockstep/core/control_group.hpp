// SPDX-License-Identifier: Apache-2.0
/// @file
/// The control groups of this process and the memory limit that they set.
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
    int version = 2;             ///< version of the hierarchy: 1 or 2
    std::string controllers;     ///< "cpu,cpuacct"; "" in version 2, which has all of them
    std::filesystem::path path;  ///< path within the hierarchy, "/" at its top

    /// Returns true if this hierarchy may govern `controller`: "memory", "cpu", "cpuset".
    bool has(std::string_view controller) const;
};

/// Returns this process's groups in the kernel's order; `root` is the file system's root.
std::vector<ControlGroup> control_groups(const std::filesystem::path& root);

/// Returns the folders with `controller`'s files of `group` and of the groups above it, up to the
/// mount. Inside a container the group's path is often a path of the host, and only the mount
/// exists: missing folders are left out.
std::vector<std::filesystem::path> folders_of(const ControlGroup& group,
                                              std::string_view controller,
                                              const std::filesystem::path& root);

/// Returns the smallest memory limit of this process's control group and those above it, version 1
/// or 2, below `root`. Returns nothing if none is set.
std::optional<std::uint64_t> control_group_memory_limit(const std::filesystem::path& root);

/// Returns what those limits leave now: the smallest of limit less use, where files that the kernel
/// can drop do not count as used. Returns nothing if no limit is set.
std::optional<std::uint64_t> control_group_memory_left(const std::filesystem::path& root = "/");

/// What the kernel's OOM killer did in this process's control group, up to SLURM's group of the job
/// ("job_4711"), or up to the group that sets the memory limit.
struct MemoryEnd {
    std::uint64_t kills = 0;             ///< processes that it has ended so far
    std::optional<std::uint64_t> limit;  ///< bytes
    std::optional<std::uint64_t> peak;   ///< most bytes in use; kernels before 5.19 may not say it
    bool is_of_job = false;              ///< the group is SLURM's: all kills are the job's
};
/// Returns what it did so far.
MemoryEnd control_group_memory_end(const std::filesystem::path& root = "/");

/// Returns the first 1 MiB of the file without white space at the end; "" if it cannot be read.
std::string text_of(const std::filesystem::path& path);

}  // namespace lockstep
