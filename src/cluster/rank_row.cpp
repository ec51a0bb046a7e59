// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/rank_row.hpp"

#include "topology/facts_json.hpp"

namespace lockstep {

void describe(Record& record, RankRow& facts) {
    record.sparse("rank", facts.rank, -1);
    record.sparse("host", facts.host);
    record.sparse("host_id", facts.host_id);
    cpu_list(record, "cpus", facts.cpus);
    instruction_set(record, "instruction_set", facts.instruction_set);
    record.sparse("memory_bytes", facts.memory_bytes);
    record.sparse("memory_is_limited", facts.memory_is_limited);
}

RankRow make_rank_row(const NodeFacts& node, int rank) {
    return {.rank = rank,
            .host = node.host,
            .host_id = node.host_id(),
            .cpus = node.allowed_cpus,
            .instruction_set = node.instruction_set,
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
