// SPDX-License-Identifier: Apache-2.0
// Ways to group the ranks of a test program into nodes.
#pragma once

#include "road/nodes.hpp"
#include "support/mpi_test.hpp"

#include <string>
#include <utility>
#include <vector>

namespace lockstep::test {

/// A name and the node that a rank is taken to be on; ranks of one host only.
struct Grouping {
    const char* name;
    int (*node_of)(int rank);
};
inline const std::vector<Grouping> groupings = {
    {"one node", [](int) { return 0; }},
    {"each alone", [](int rank) { return rank; }},
    {"pairs", [](int rank) { return rank / 2; }},
    {"threes", [](int rank) { return rank / 3; }},
    {"in turn over two", [](int rank) { return rank % 2; }},
    {"in turn over three", [](int rank) { return rank % 3; }},
    {"one and the rest", [](int rank) { return rank == 0 ? 0 : 1; }},
    {"the rest and one", [](int rank) { return rank < 5 ? 7 : rank; }},
};

/// Faked nodes where all ranks are on one host, the hosts otherwise.
inline std::vector<std::pair<std::string, Nodes>> all_nodes() {
    std::vector<std::pair<std::string, Nodes>> all;
    const Nodes real(ranks(), node_by_memory(ranks()));
    all.emplace_back("hosts", real);
    all.emplace_back("each alone", Nodes(ranks(), ranks().rank()));
    if (real.count() > 1) return all;
    for (const Grouping& grouping : groupings)
        all.emplace_back(grouping.name, Nodes(ranks(), grouping.node_of(ranks().rank())));
    return all;
}

/// Three of them, for what takes long: the hosts, each rank alone, and uneven nodes.
inline std::vector<std::pair<std::string, Nodes>> some_nodes() {
    auto nodes = all_nodes();
    std::erase_if(nodes, [](const auto& named) {
        return named.first != "hosts" && named.first != "each alone" &&
               named.first != "in turn over three";
    });
    return nodes;
}

}  // namespace lockstep::test
