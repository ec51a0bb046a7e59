// SPDX-License-Identifier: Apache-2.0
// Facts of nodes, ranks and plans as JSON and back, by their describe(). Unknown keys are refused:
// people write such files by hand, and a misspelt key would lose a fact silently.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/record.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Reads or writes a node inside other facts.
void describe(Record& record, NodeTopology& node);

/// Reads or writes CPUs or memory nodes in the kernel's form: "0-3,8"; an empty list is left out.
void cpu_list(Record& record, const char* key, std::vector<int>& cpus);
void cpu_lists(Record& record, const char* key, std::vector<std::vector<int>>& lists);

/// Reads or writes a level by its name; the lowest level is left out.
void instruction_set(Record& record, const char* key, InstructionSet& level);

/// Returns JSON on one line.
template <Described Facts>
std::string text_of_facts(const Facts& facts) {
    return json_of_record(facts).dump();
}

/// Reads facts. Errors: E222 naming `origin`.
template <Described Facts>
Facts facts_of_text(std::string_view text, const std::string& origin) {
    return record_from_json<Facts>(parse_json(text, origin), origin, UnknownKeys::refused);
}

}  // namespace lockstep
