// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/watchdog.hpp"

#include "flight/node_beat.hpp"
#include "flight/process_facts.hpp"
#include "flight/unanswered.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace lockstep {

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

NodeMap node_map(const std::vector<std::string>& places, int rank, int node) {
    std::map<int, NodeRanks> nodes;
    int next = 0;
    for (const std::string& text : places) {
        const Json place = parse_json(text, "a rank's place");
        NodeRanks& its = nodes[static_cast<int>(json_field<std::int64_t>(place, "node", "place"))];
        its.host = json_field<std::string>(place, "host", "place");
        its.addresses = json_field<std::vector<std::string>>(place, "addresses", "place");
        its.ranks.push_back(
            {next++,
             {.boot_id = json_field<std::string>(place, "boot", "place"),
              .pid_namespace = json_field<std::uint64_t>(place, "namespace", "place"),
              .pid = json_field<std::int64_t>(place, "pid", "place"),
              .start_ticks = json_field<std::uint64_t>(place, "start", "place")}});
    }
    NodeMap map{.rank = rank,
                .own = static_cast<std::size_t>(std::distance(nodes.begin(), nodes.find(node)))};
    for (auto& [lowest, its] : nodes) map.nodes.push_back(std::move(its));
    return map;
}

bool can_beat(const NodeMap& map, const fs::path& folder) {
    return write_node_beat(node_beat_path(folder, static_cast<int>(map.own)), {}, Create::yes);
}

}  // namespace lockstep
