// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operating system's data about this node and about this process on it.
#pragma once

#include "lockstep/core/instruction_set.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The limits of this process's control groups: the smallest of this group and those above.
struct ControlGroupFacts {
    int version = 0;                  ///< 0: none found
    std::vector<int> cpus;            ///< cpuset; empty: not reported
    std::vector<int> memory_nodes;    ///< cpuset; empty: not reported
    std::optional<double> cpu_quota;  ///< quota in CPUs; nothing: no quota
    std::optional<std::uint64_t> memory_limit_bytes;
    std::uint64_t throttled_periods = 0;
    bool operator==(const ControlGroupFacts&) const = default;
};

/// Facts of a node that one process reads quickly, from a few files of /proc and /sys. NodeTopology
/// adds all others.
struct NodeFacts {
    std::string host;               ///< host name
    std::string boot_id;            ///< differs between nodes of the same name, and between boots
    std::vector<int> allowed_cpus;  ///< CPUs that this process may use
    std::vector<int> allowed_memory_nodes;  ///< NUMA nodes for its memory
    std::string cpu_model;
    InstructionSet instruction_set = InstructionSet::basic;
    std::uint64_t memory_bytes = 0;  ///< memory of the whole node
    ControlGroupFacts control_group;
    bool operator==(const NodeFacts&) const = default;

    /// Returns a text that is equal exactly for processes of one booted node.
    std::string host_id() const { return boot_id + "/" + host; }

    /// Returns the control group's limit, if that is below the node's memory.
    std::optional<std::uint64_t> memory_limit_bytes() const;

    /// Returns the smaller of the node's memory and the limit.
    std::uint64_t usable_memory_bytes() const {
        return memory_limit_bytes().value_or(memory_bytes);
    }
};

/// Reads below `root`, where a test may put a copy of /proc and /sys. Missing facts stay empty,
/// because no file exists on every kernel.
NodeFacts read_node_facts(const std::filesystem::path& root = "/");

/// Returns {0,1,2,3,8} for "0-3,8"; sorted, each CPU once. Returns nothing if `text` is not such a
/// list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// Returns "0-3,8" for {0,1,2,3,8}; "-" for none.
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace lockstep
