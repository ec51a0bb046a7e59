// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"

#include "facts_json.hpp"

namespace lockstep {

template <class Walker, FactsOf<RankRow> Facts>
void walk(Walker& on, Facts& facts) {
    on("rank", facts.rank, -1);
    on("host", facts.host);
    on("host_id", facts.host_id);
    on("cpus", facts.cpus);
    on("instruction_set", facts.instruction_set);
    on("memory_bytes", facts.memory_bytes);
    on("memory_is_limited", facts.memory_is_limited);
}

RankRow make_rank_row(const NodeFacts& node, int rank) {
    return {.rank = rank,
            .host = node.host,
            .host_id = node.host_id(),
            .cpus = node.allowed_cpus,
            .instruction_set = std::string(instruction_set_name(node.instruction_set)),
            .memory_bytes = node.usable_memory_bytes(),
            .memory_is_limited = node.memory_limit_bytes().has_value()};
}

std::string serialize(const RankRow& row) {
    return text_of_facts(row);
}

RankRow deserialize_rank_row(std::string_view text, const std::string& origin) {
    return facts_of_text<RankRow>(text, origin);
}

}  // namespace lockstep
