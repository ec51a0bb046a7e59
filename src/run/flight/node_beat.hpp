// SPDX-License-Identifier: Apache-2.0
// What a node says of its ranks every few seconds, in a small file that other nodes read.
#pragma once

#include "lockstep/run/rank_trace.hpp"

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep {

/// As the node itself sees it. ended: it left an end mark, or was told to end.
enum class RankState { running, stopped, gone, ended };

struct RankBeat {
    int rank = 0;
    std::int64_t pid = 0;
    RankState state = RankState::running;
    bool operator==(const RankBeat&) const = default;
};

struct NodeBeat {
    std::uint64_t count = 0;     ///< changes with every beat
    double unix_s = 0;           ///< when, by the node's clock
    bool is_leaving = false;     ///< the last beat: silence means nothing from now on
    bool has_lost_link = false;  ///< see LinkWatch
    std::vector<RankBeat> ranks{};
    bool operator==(const NodeBeat&) const = default;
};

/// `folder`/node-00003.beat
fs::path node_beat_path(const fs::path& folder, int node);

/// Writes in place and closes, which sends it to a file server: see node_watch.cpp. Without
/// `Create::yes` only where the file is. Whether it worked.
enum class Create { no, yes };
bool write_node_beat(const fs::path& path, const NodeBeat& beat, Create create);

/// Nothing where there is none, or none that is whole.
std::optional<NodeBeat> read_node_beat(const fs::path& path);

/// Adds what the nodes' beats in `folder` say to what a reader cannot see: ranks elsewhere.
void add_node_beats(const fs::path& folder, std::vector<RankTrace>& traces);

/// Puts what NodeWatch::lost() knows into `traces`, where ranks that left no record are missing.
void add_lost_ranks(const std::vector<RankTrace>& lost, std::vector<RankTrace>& traces);

}  // namespace lockstep
