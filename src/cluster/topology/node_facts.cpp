// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "fact_files.hpp"
#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct Level {
    std::string_view name, aten, onednn;
    std::initializer_list<const char*> flags;  ///< of /proc/cpuinfo, beside those of levels before
};
const std::array<Level, 5> levels{{
    {"default", "default", "SSE41", {}},
    {"avx2", "avx2", "AVX2", {"avx2", "fma"}},
    {"avx512", "avx512", "AVX512_CORE", {"avx512f", "avx512bw", "avx512vl", "avx512dq"}},
    {"avx512-bf16", "avx512", "AVX512_CORE_BF16", {"avx512_vnni", "avx512_bf16"}},
    {"amx", "avx512", "AVX512_CORE_AMX", {"avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}},
}};

const Level& names_of(InstructionSet level) {
    return levels.at(static_cast<std::size_t>(level));
}

std::uint64_t total_memory(const fs::path& root) {
    const auto text = value_of(text_of(root / "proc/meminfo"), "MemTotal");
    const auto kib = parse_integer(std::string_view(text).substr(0, text.find(' ')));
    return kib && *kib > 0 ? static_cast<std::uint64_t>(*kib) * 1024 : 0;
}

void read_processor(const fs::path& root, NodeFacts& facts) {
    const auto info = text_of(root / "proc/cpuinfo");
    facts.cpu_model = value_of(info, "model name");
    facts.instruction_set = best_instruction_set(value_of(info, "flags"));
}

}  // namespace

std::string_view instruction_set_name(InstructionSet level) {
    return names_of(level).name;
}

std::string_view aten_capability(InstructionSet level) {
    return names_of(level).aten;
}

std::string_view onednn_isa_name(InstructionSet level) {
    return names_of(level).onednn;
}

std::optional<InstructionSet> parse_instruction_set(std::string_view name) {
    const auto found = std::ranges::find(levels, name, &Level::name);
    if (found == levels.end()) return {};
    return static_cast<InstructionSet>(found - levels.begin());
}

InstructionSet best_instruction_set(std::string_view cpu_flags) {
    std::istringstream words{std::string(cpu_flags)};
    const std::set<std::string, std::less<>> flags(std::istream_iterator<std::string>(words), {});
    const auto lacks = [&](const Level& level) {
        return !std::ranges::all_of(level.flags,
                                    [&](const char* flag) { return flags.contains(flag); });
    };
    const auto first_lacking = std::ranges::find_if(levels, lacks);
    return static_cast<InstructionSet>(first_lacking - levels.begin() - 1);
}

std::optional<std::uint64_t> NodeFacts::memory_limit_bytes() const {
    const auto limit = control_group.memory_limit_bytes;
    return limit && (memory_bytes == 0 || *limit < memory_bytes) ? limit : std::nullopt;
}

NodeFacts read_node_facts(const fs::path& root) {
    const auto status = text_of(root / "proc/self/status");
    const auto allowed = [&](std::string_view key) {
        return parse_cpu_list(value_of(status, key)).value_or(std::vector<int>{});
    };
    NodeFacts facts;
    facts.host = text_of(root / "proc/sys/kernel/hostname");
    facts.boot_id = text_of(root / "proc/sys/kernel/random/boot_id");
    facts.allowed_cpus = allowed("Cpus_allowed_list");
    facts.allowed_memory_nodes = allowed("Mems_allowed_list");
    facts.memory_bytes = total_memory(root);
    facts.control_group = read_control_group(root);
    read_processor(root, facts);
    return facts;
}

}  // namespace lockstep
