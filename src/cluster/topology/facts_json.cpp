// SPDX-License-Identifier: Apache-2.0
#include "facts_json.hpp"

#include "lockstep/cluster/cpu_list.hpp"

#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::string_view wanted_list = "a list such as 0-3,8";

std::optional<std::vector<int>> parse_cpus(std::string_view text) {
    return parse_cpu_list(text == "-" ? "" : text);
}

}  // namespace

void cpu_list(Record& record, const char* key, std::vector<int>& cpus) {
    if (record.wants(key, !cpus.empty()))
        record.text(key, cpus, cpu_list_text, parse_cpus, wanted_list);
}

void cpu_lists(Record& record, const char* key, std::vector<std::vector<int>>& lists) {
    std::vector<std::string> texts;
    for (const auto& cpus : lists) texts.push_back(cpu_list_text(cpus));
    record.sparse(key, texts);
    if (!record.is_reading()) return;
    lists.clear();
    for (const std::string& text : texts) {
        const auto cpus = parse_cpus(text);
        if (!cpus) throw record.unfit(fmt::format("{}[{}]", key, lists.size()), text, wanted_list);
        lists.push_back(*cpus);
    }
}

void instruction_set(Record& record, const char* key, InstructionSet& level) {
    if (record.wants(key, level != InstructionSet::basic))
        record.text(key, level, instruction_set_name, parse_instruction_set, "an instruction set");
}

}  // namespace lockstep
