// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/node_watch.hpp"

#include "flight/node_beat.hpp"
#include "flight/node_map.hpp"
#include "flight/unanswered.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

namespace lockstep {
namespace {

std::string own_place(int node) {
    const ProcessIdentity self = this_process();
    return Json{{"node", node},
                {"host", host_name()},
                {"boot", self.boot_id},
                {"namespace", self.pid_namespace},
                {"pid", self.pid},
                {"start", self.start_ticks},
                {"addresses", own_addresses()}}
        .dump();
}

/// Collective. A node is named by its lowest rank.
NodeMap map_of(const Communicator& ranks) {
    const Communicator node = ranks.split_by_node();
    const int first = std::stoi(node.broadcast(std::to_string(ranks.rank())));
    std::map<int, NodeRanks> nodes;
    int rank = 0;
    for (const std::string& text : ranks.all_gather(own_place(first))) {
        const Json place = parse_json(text, "a rank's place");
        NodeRanks& its = nodes[static_cast<int>(json_field<std::int64_t>(place, "node", "place"))];
        its.host = json_field<std::string>(place, "host", "place");
        its.addresses = json_field<std::vector<std::string>>(place, "addresses", "place");
        its.ranks.push_back(
            {rank++,
             {.boot_id = json_field<std::string>(place, "boot", "place"),
              .pid_namespace = json_field<std::uint64_t>(place, "namespace", "place"),
              .pid = json_field<std::int64_t>(place, "pid", "place"),
              .start_ticks = json_field<std::uint64_t>(place, "start", "place")}});
    }
    NodeMap map{.rank = ranks.rank(),
                .own = static_cast<std::size_t>(std::distance(nodes.begin(), nodes.find(first)))};
    for (auto& [lowest, its] : nodes) map.nodes.push_back(std::move(its));
    return map;
}

/// Collective. Whether every node can write into `folder`.
bool is_shared(const Communicator& ranks, const NodeMap& map, const fs::path& folder) {
    const bool is_first = map.nodes[map.own].ranks.front().rank == map.rank;
    const fs::path file = node_beat_path(folder, static_cast<int>(map.own));
    std::array<std::int64_t, 1> failed = {is_first && !write_node_beat(file, {}, Create::yes) ? 1
                                                                                              : 0};
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
