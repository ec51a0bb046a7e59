// SPDX-License-Identifier: Apache-2.0
#include "road/nodes.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <map>
#include <string>

namespace lockstep {

int node_by_memory(const Communicator& ranks) {
    return std::stoi(ranks.split_by_node().broadcast(std::to_string(ranks.rank())));
}

Nodes each_alone(const Communicator& ranks) {
    return Nodes(ranks, ranks.rank());
}

Nodes::Nodes(const Communicator& ranks, int node) : all_(ranks.duplicate()) {
    std::map<std::string, int> numbers;
    for (const std::string& name : ranks.all_gather(std::to_string(node))) {
        const auto [entry, is_new] = numbers.emplace(name, count());
        if (is_new) members_.emplace_back();
        auto& members = members_[static_cast<std::size_t>(entry->second)];
        local_rank_of_.push_back(static_cast<int>(members.size()));
        members.push_back(static_cast<int>(node_of_rank_.size()));
        node_of_rank_.push_back(entry->second);
    }
    rails_ =
        static_cast<int>(std::ranges::min_element(members_, {}, &std::vector<int>::size)->size());
    local_ = ranks.split(index());
}

Rail Nodes::own_rail() const {
    expect(has_rail(), "this rank owns a stripe");
    Rail rail{all_, {}};
    for (int node = 0; node < count(); ++node)
        rail.rank_on_node.push_back(ranks_on(node)[static_cast<std::size_t>(local_.rank())]);
    return rail;
}

}  // namespace lockstep
