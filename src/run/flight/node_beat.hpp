// SPDX-License-Identifier: Apache-2.0
// A node's heartbeat: the state of its ranks every few seconds, in a small file that other nodes
// read.
#pragma once

#include "lockstep/run/rank_trace.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// The state of a rank as the node itself sees it. ended: it left an end mark, or was told to end.
enum class RankState { running, stopped, gone, ended };

struct RankBeat {
    int rank = 0;
    std::int64_t pid = 0;
    RankState state = RankState::running;
    bool operator==(const RankBeat&) const = default;
};

struct NodeBeat {
    std::uint64_t count = 0;     ///< changes with every beat
    double unix_s = 0;           ///< time by the node's clock
    bool is_leaving = false;     ///< the last heartbeat: later silence has no meaning
    bool has_lost_link = false;  ///< see LinkWatch
    std::vector<RankBeat> ranks{};
    bool operator==(const NodeBeat&) const = default;
};

/// Returns `folder`/node-00003.beat.
fs::path node_beat_path(const fs::path& folder, int node);

/// Writes in place and closes, which sends it to a file server: see node_watch.cpp. Without
/// `Create::yes` only if the file exists. Returns true on success.
enum class Create { no, yes };
bool write_node_beat(const fs::path& path, const NodeBeat& beat, Create create);

/// Returns nothing if the file is missing or incomplete.
std::optional<NodeBeat> read_node_beat(const fs::path& path);

/// Adds facts of the nodes' heartbeats in `folder` that a reader cannot see: ranks on other nodes.
void add_node_beats(const fs::path& folder, std::vector<RankTrace>& traces);

/// Adds the ranks of NodeWatch::lost() to `traces`; ranks without a record are missing there.
void add_lost_ranks(const std::vector<RankTrace>& lost, std::vector<RankTrace>& traces);

}  // namespace lockstep
