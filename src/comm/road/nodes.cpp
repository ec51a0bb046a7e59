// SPDX-License-Identifier: Apache-2.0
#include "road/nodes.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>

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

namespace {

/// Collective. A node is named by its lowest rank.
NodeMap map_of(const Communicator& ranks) {
    const Communicator node = ranks.split_by_node();
    const int first = std::stoi(node.broadcast(std::to_string(ranks.rank())));
    return node_map(ranks.all_gather(own_place(first)), ranks.rank(), first);
}

/// Collective. Whether every node can write into `folder`.
bool is_shared(const Communicator& ranks, const NodeMap& map, const fs::path& folder) {
    const bool is_first = map.nodes[map.own].ranks.front().rank == map.rank;
    std::array<std::int64_t, 1> failed = {is_first && !can_beat(map, folder) ? 1 : 0};
    ranks.all_reduce_max(failed);
    return failed[0] == 0;
}

}  // namespace

std::unique_ptr<NodeWatch> watch_nodes(const Communicator& ranks,
                                       const std::function<fs::path()>& make_folder,
                                       NodeWatchSettings settings) {
    NodeMap map = map_of(ranks);
    if (map.nodes.size() < 2) return nullptr;
    const fs::path folder = from_root(ranks, [&] { return make_folder().string(); });
    if (folder.empty() || !is_shared(ranks, map, folder)) return nullptr;
    return std::make_unique<NodeWatch>(std::move(map), folder, settings);
}

}  // namespace lockstep
