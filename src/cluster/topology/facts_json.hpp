// SPDX-License-Identifier: Apache-2.0
// Facts of nodes, ranks and plans as JSON and back, by their describe(). People write such files by
// hand, and a misspelt key would be a fact silently left out: unknown keys are refused.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/cluster/topology.hpp"
#include "lockstep/core/record.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Nested in others' facts.
void describe(Record& record, NodeTopology& node);

/// CPUs or nodes of memory as the kernel writes them: "0-3,8"; none are left out.
void cpu_list(Record& record, const char* key, std::vector<int>& cpus);
void cpu_lists(Record& record, const char* key, std::vector<std::vector<int>>& lists);

/// By its name; the lowest level is left out.
void instruction_set(Record& record, const char* key, InstructionSet& level);

/// JSON on one line.
template <Described Facts>
std::string text_of_facts(const Facts& facts) {
    return json_of_record(facts).dump();
}

/// Errors: E222 naming `origin`.
template <Described Facts>
Facts facts_of_text(std::string_view text, const std::string& origin) {
    return record_from_json<Facts>(parse_json(text, origin), origin, UnknownKeys::refused);
}

}  // namespace lockstep
