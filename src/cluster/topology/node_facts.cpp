// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "fact_files.hpp"
#include "topology/topology_readers.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct ArmModel {
    std::string_view maker, part, name;
};
/// Numbers of servers' processors, as in Linux's arch/arm64/include/asm/cputype.h.
constexpr std::array arm_models{ArmModel{"0x41", "0xd0c", "Arm Neoverse N1"},
                                ArmModel{"0x41", "0xd40", "Arm Neoverse V1"},
                                ArmModel{"0x41", "0xd49", "Arm Neoverse N2"},
                                ArmModel{"0x41", "0xd4f", "Arm Neoverse V2"},
                                ArmModel{"0x41", "0xd83", "Arm Neoverse V3"},
                                ArmModel{"0x46", "0x001", "Fujitsu A64FX"},
                                ArmModel{"0xc0", "0xac3", "Ampere-1"},
                                ArmModel{"0xc0", "0xac4", "Ampere-1A"}};

std::uint64_t total_memory(const fs::path& root) {
    const auto text = value_of(text_of(root / "proc/meminfo"), "MemTotal");
    const auto kib = parse_integer(std::string_view(text).substr(0, text.find(' ')));
    return kib && *kib > 0 ? static_cast<std::uint64_t>(*kib) * 1024 : 0;
}

/// Arm's kernel writes numbers where that of x86 writes a name.
std::string processor_name(const std::string& info) {
    const std::string name = value_of(info, "model name");
    const std::string maker = value_of(info, "CPU implementer"), part = value_of(info, "CPU part");
    if (!name.empty() || maker.empty()) return name;
    const auto found = std::ranges::find_if(arm_models, [&](const ArmModel& model) {
        return model.maker == maker && model.part == part;
    });
    return found != arm_models.end() ? std::string(found->name)
                                     : fmt::format("Arm processor {} of maker {}", part, maker);
}

void read_processor(const fs::path& root, NodeFacts& facts) {
    const auto info = text_of(root / "proc/cpuinfo");
    facts.cpu_model = processor_name(info);
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
