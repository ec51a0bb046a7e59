// SPDX-License-Identifier: Apache-2.0
/// @file
/// The operating system's data about this node and this process's place on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Levels of x86 vector instructions that change results or speed; each includes those before. The
/// last two multiply numbers of 16 bits.
enum class InstructionSet { basic, avx2, avx512, avx512_bf16, amx };

/// "default", "avx2", "avx512", "avx512-bf16", "amx".
std::string_view instruction_set_name(InstructionSet level);

/// ATen's word, as in ATEN_CPU_CAPABILITY: "default", "avx2", "avx512".
std::string_view aten_capability(InstructionSet level);

/// oneDNN's word, as in ONEDNN_MAX_CPU_ISA: "SSE41", "AVX2", "AVX512_CORE", ...
std::string_view onednn_isa_name(InstructionSet level);

/// The level that instruction_set_name() calls `name`, or nothing.
std::optional<InstructionSet> parse_instruction_set(std::string_view name);

/// The best level that the flags of /proc/cpuinfo allow.
InstructionSet best_instruction_set(std::string_view cpu_flags);

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

}  // namespace lockstep
