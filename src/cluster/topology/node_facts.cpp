// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "fact_files.hpp"
#include "topology/topology_readers.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

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
