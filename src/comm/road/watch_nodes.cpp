// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/recorded.hpp"

#include <array>
#include <span>
#include <string>
#include <utility>

namespace lockstep {
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
