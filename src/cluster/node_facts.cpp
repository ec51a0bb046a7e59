// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "fact_files.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <sstream>

#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct LevelNames {
    std::string_view aten, onednn;
};
constexpr std::array<LevelNames, 3> level_names{{
    {"default", "SSE41"},
    {"avx2", "AVX2"},
    {"avx512", "AVX512_CORE"},
}};

std::vector<int> numa_nodes_of(const fs::path& root, const std::vector<int>& cpus) {
    std::set<int> nodes;
    for (const auto& entry : entries_of(root / "sys/devices/system/node")) {
        const auto name = entry.filename().string();
        if (!name.starts_with("node")) continue;
        const auto number = parse_integer(name.substr(4));
        const auto here = parse_cpu_list(text_of(entry / "cpulist")).value_or(std::vector<int>{});
        std::vector<int> common;
        std::ranges::set_intersection(here, cpus, std::back_inserter(common));
        if (number && !common.empty()) nodes.insert(static_cast<int>(*number));
    }
    return {nodes.begin(), nodes.end()};
}

/// NVIDIA's vendor id with a class of display controllers (0x03xxxx); drivers need not be there.
bool is_gpu(const fs::path& device) {
    return text_of(device / "vendor") == "0x10de" && text_of(device / "class").starts_with("0x03");
}

std::vector<std::string> gpus_of(const fs::path& root) {
    std::vector<std::string> addresses;
    for (const auto& device : entries_of(root / "sys/bus/pci/devices")) {
        if (is_gpu(device)) addresses.push_back(device.filename().string());
    }
    return addresses;
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

void read_memory(const fs::path& root, NodeFacts& facts) {
    facts.total_memory_bytes = total_memory(root);
    const auto limit = control_group_memory_limit(root);
    const auto total = facts.total_memory_bytes;
    if (limit && (total == 0 || *limit < total)) facts.memory_limit_bytes = limit;
}

}  // namespace

std::string_view instruction_set_name(InstructionSet level) {
    return level_names.at(static_cast<std::size_t>(level)).aten;
}

std::string_view onednn_isa_name(InstructionSet level) {
    return level_names.at(static_cast<std::size_t>(level)).onednn;
}

std::optional<InstructionSet> parse_instruction_set(std::string_view name) {
    const auto found = std::ranges::find(level_names, name, &LevelNames::aten);
    if (found == level_names.end()) return {};
    return static_cast<InstructionSet>(found - level_names.begin());
}

InstructionSet best_instruction_set(std::string_view cpu_flags) {
    std::istringstream words{std::string(cpu_flags)};
    const std::set<std::string, std::less<>> flags(std::istream_iterator<std::string>(words), {});
    const auto has_all = [&](std::initializer_list<const char*> names) {
        return std::ranges::all_of(names, [&](const char* name) { return flags.contains(name); });
    };
    if (!has_all({"avx2", "fma"})) return InstructionSet::basic;
    const bool has_avx512 = has_all({"avx512f", "avx512bw", "avx512vl", "avx512dq"});
    return has_avx512 ? InstructionSet::avx512 : InstructionSet::avx2;
}

NodeFacts read_node_facts(const fs::path& root) {
    NodeFacts facts;
    facts.host = text_of(root / "proc/sys/kernel/hostname");
    facts.boot_id = text_of(root / "proc/sys/kernel/random/boot_id");
    facts.pid = ::getpid();
    const auto status = text_of(root / "proc/self/status");
    facts.cpus = parse_cpu_list(value_of(status, "Cpus_allowed_list")).value_or(std::vector<int>{});
    facts.numa_nodes = numa_nodes_of(root, facts.cpus);
    read_processor(root, facts);
    read_memory(root, facts);
    facts.gpus = gpus_of(root);
    return facts;
}

}  // namespace lockstep
