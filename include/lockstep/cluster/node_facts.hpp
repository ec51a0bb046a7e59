// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operating system's data about this node and this process's place on it.
#pragma once

#include "lockstep/core/instruction_set.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What control groups allow this process; the smallest on the way up.
struct ControlGroupFacts {
    int version = 0;                  ///< 0: none found
    std::vector<int> cpus;            ///< cpuset; empty: not said
    std::vector<int> memory_nodes;    ///< cpuset; empty: not said
    std::optional<double> cpu_quota;  ///< CPUs' worth of time; nothing: no quota
    std::optional<std::uint64_t> memory_limit_bytes;
    std::uint64_t throttled_periods = 0;
    bool operator==(const ControlGroupFacts&) const = default;
};

/// What one process sees of its node and is quickly read: a few files of /proc and /sys.
/// NodeTopology is this and all the rest.
struct NodeFacts {
    std::string host;                       ///< host name
    std::string boot_id;                    ///< distinguishes nodes of the same name, and boots
    std::vector<int> allowed_cpus;          ///< of this process
    std::vector<int> allowed_memory_nodes;  ///< of this process
    std::string cpu_model;
    InstructionSet instruction_set = InstructionSet::basic;
    std::uint64_t memory_bytes = 0;  ///< of the whole node
    ControlGroupFacts control_group;
    bool operator==(const NodeFacts&) const = default;

    /// Equal for processes of one booted node, and for no others.
    std::string host_id() const { return boot_id + "/" + host; }

    /// The control group's limit, if that is below the node's memory.
    std::optional<std::uint64_t> memory_limit_bytes() const;

    /// The smaller of the node's memory and the limit.
    std::uint64_t usable_memory_bytes() const {
        return memory_limit_bytes().value_or(memory_bytes);
    }
};

/// Reads below `root`, where a test may put a copy of /proc and /sys. What is missing there stays
/// empty: no file is promised on every kernel.
NodeFacts read_node_facts(const std::filesystem::path& root = "/");

/// Returns {0,1,2,3,8} for "0-3,8"; sorted, each CPU once. Returns nothing if `text` is not such a
/// list.
std::optional<std::vector<int>> parse_cpu_list(std::string_view text);

/// Returns "0-3,8" for {0,1,2,3,8}; "-" for none.
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace lockstep
