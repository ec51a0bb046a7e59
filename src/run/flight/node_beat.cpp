// SPDX-License-Identifier: Apache-2.0
#include "flight/node_beat.hpp"

#include "lockstep/core/hash.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/watchdog.hpp"

#include "flight/process_facts.hpp"
#include "flight/unanswered.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <sstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> state_names{"running", "stopped", "gone", "ended"};
constexpr std::string_view first_word = "lockstep-node-1", last_word = "end";
constexpr std::size_t most_bytes = 1u << 20;

// The text has the same size as long as the node has the same ranks: overwriting leaves no rest.
std::string beat_text(const NodeBeat& beat) {
    std::string text = fmt::format("{} {} {} {} {}\n",
                                   first_word,
                                   beat.count,
                                   beat.unix_s,
                                   int{beat.is_leaving},
                                   int{beat.has_lost_link});
    for (const RankBeat& rank : beat.ranks)
        text += fmt::format("{} {} {}\n",
                            rank.rank,
                            rank.pid,
                            state_names.at(static_cast<std::size_t>(rank.state)));
    text += fmt::format("{}\n", last_word);
    constexpr std::size_t head_bytes = 128, rank_bytes = 64;
    text.resize(head_bytes + rank_bytes * beat.ranks.size(), '\n');
    return text;
}

std::optional<NodeBeat> parse(const std::string& text) {
    std::istringstream words(text);
    std::string word;
    NodeBeat beat;
    words >> word >> beat.count >> beat.unix_s >> beat.is_leaving >> beat.has_lost_link;
    if (!words || word != first_word) return std::nullopt;
    while (words >> word && word != last_word) {
        RankBeat rank;
        std::string state;
        std::istringstream number(word);
        if (!(number >> rank.rank) || !(words >> rank.pid >> state)) return std::nullopt;
        const auto known = std::ranges::find(state_names, state);
        if (known == state_names.end()) return std::nullopt;
        rank.state = static_cast<RankState>(known - state_names.begin());
        beat.ranks.push_back(rank);
    }
    if (word != last_word) return std::nullopt;  // torn: the next look finds it whole
    return beat;
}

void add_beat(const NodeBeat& beat, std::vector<RankTrace>& traces) {
    for (const RankBeat& rank : beat.ranks) {
        const auto found = std::ranges::find(traces, rank.rank, &RankTrace::rank);
        const bool is_news = found != traces.end() && found->damage.empty() &&
                             found->life == Life::elsewhere && found->pid == rank.pid;
        if (!is_news) continue;
        if (rank.state == RankState::gone) found->life = Life::gone;
        if (rank.state == RankState::stopped) found->life = Life::stopped;
        if (rank.state == RankState::running)
            found->heartbeat_s = std::max(found->heartbeat_s, beat.unix_s);
    }
}

}  // namespace

fs::path node_beat_path(const fs::path& folder, int node) {
    return folder / fmt::format("node-{:05}.beat", node);
}

bool write_node_beat(const fs::path& path, const NodeBeat& beat, Create create) {
    UniqueFd file = open_for_writing(path, O_WRONLY | (create == Create::yes ? O_CREAT : 0));
    if (!file) return false;
    try {
        write_all(file.value(), bytes_of(beat_text(beat)), path);
    } catch (const Error&) {
        return false;
    }
    return ::close(file.release()) == 0;
}

std::optional<NodeBeat> read_node_beat(const fs::path& path) try {
    return parse(read_file(path, most_bytes));
} catch (const Error&) {
    return std::nullopt;
}

void add_node_beats(const fs::path& folder, std::vector<RankTrace>& traces) {
    std::error_code failed;
    for (const auto& entry : fs::directory_iterator(folder, failed))
        if (entry.path().extension() == ".beat")
            if (const auto beat = read_node_beat(entry.path())) add_beat(*beat, traces);
}

void add_lost_ranks(const std::vector<RankTrace>& lost, std::vector<RankTrace>& traces) {
    for (const RankTrace& rank : lost) {
        const auto found = std::ranges::find(traces, rank.rank, &RankTrace::rank);
        if (found == traces.end()) {
            traces.insert(std::ranges::upper_bound(traces, rank.rank, {}, &RankTrace::rank), rank);
        } else if (found->damage.empty()) {
            found->life = rank.life;
            found->heartbeat_s = std::min(found->heartbeat_s, rank.heartbeat_s);
            found->unanswered_s = rank.unanswered_s;
            found->asked_by = rank.asked_by;
        } else {
            *found = rank;
        }
    }
}

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
