// SPDX-License-Identifier: Apache-2.0
/// @file
/// What the operating system says about this node and about this process's place on it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Levels of x86 vector instructions that change results or speed; each includes those before.
/// The same three as ATen's dispatcher knows.
enum class InstructionSet { basic, avx2, avx512 };

/// ATen's word, as in ATEN_CPU_CAPABILITY: "default", "avx2", "avx512".
std::string_view instruction_set_name(InstructionSet level);

/// oneDNN's word, as in ONEDNN_MAX_CPU_ISA: "SSE41", "AVX2", "AVX512_CORE".
std::string_view onednn_isa_name(InstructionSet level);

/// The level that instruction_set_name() calls `name`, or nothing.
std::optional<InstructionSet> parse_instruction_set(std::string_view name);

/// The best level that the flags of /proc/cpuinfo allow.
InstructionSet best_instruction_set(std::string_view cpu_flags);

/// One process's view of its node.
struct NodeFacts {
    std::string host;             ///< host name
    std::string boot_id;          ///< tells two nodes of one name, and two boots, apart
    std::int64_t pid = 0;         ///< of this process
    std::vector<int> cpus;        ///< CPUs this process may run on
    std::vector<int> numa_nodes;  ///< NUMA nodes of those CPUs
    std::string cpu_model;
    InstructionSet instruction_set = InstructionSet::basic;
    std::uint64_t total_memory_bytes = 0;
    std::optional<std::uint64_t> memory_limit_bytes;  ///< of the control group, if below the total
    std::vector<std::string> gpus;  ///< PCI addresses of NVIDIA GPUs, whether usable or not

    /// Equal for processes of one booted node, and for no others.
    std::string host_id() const { return boot_id + "/" + host; }

    /// The smaller of total memory and limit.
    std::uint64_t usable_memory_bytes() const {
        return memory_limit_bytes.value_or(total_memory_bytes);
    }
};

/// Reads below `root`, where a test may put a copy of /proc and /sys. What is missing there stays
/// empty: no file is promised on every kernel. The pid is always this process's.
NodeFacts read_node_facts(const std::filesystem::path& root = "/");

}  // namespace lockstep
