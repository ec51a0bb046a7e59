// SPDX-License-Identifier: Apache-2.0
#include "placement_fields.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string serialize(const LaunchedRank& rank) {
    return text_of_facts(rank);
}

std::string serialize(const RankSeat& seat) {
    return text_of_facts(seat);
}

std::string serialize(const NodeWitness& witness) {
    return text_of_facts(witness);
}

std::string serialize(const Placement& placement) {
    return text_of_facts(placement);
}

LaunchedRank deserialize_launched_rank(std::string_view text, const std::string& origin) {
    return facts_of_text<LaunchedRank>(text, origin);
}

RankSeat deserialize_seat(std::string_view text, const std::string& origin) {
    return facts_of_text<RankSeat>(text, origin);
}

NodeWitness deserialize_witness(std::string_view text, const std::string& origin) {
    return facts_of_text<NodeWitness>(text, origin);
}

Placement deserialize_placement(std::string_view text, const std::string& origin) {
    auto placement = facts_of_text<Placement>(text, origin);
    for (std::size_t i = 0; i < placement.seats.size(); ++i)
        check(placement.seats[i].rank == static_cast<int>(i), [&] {
            return Error(
                "E222",
                fmt::format("'{}': seat {} is of rank {}", origin, i, placement.seats[i].rank),
                "a plan has one seat for each rank, in order",
                "write it anew with 'lockstep map --format json'");
        });
    return placement;
}

}  // namespace lockstep
