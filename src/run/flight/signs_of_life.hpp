// SPDX-License-Identifier: Apache-2.0
// What the kernel tells of processes and threads: those of this process, and whether another of
// this machine is still the one that it was.
//
// And what a node tells others. Its heartbeat: the state of its ranks every few seconds, in a small
// file. Its network: to which hosts it sends in vain, as a firewall between two hosts stops no
// process and no link; and whether a link went down lately.
#pragma once

#include "lockstep/run/rank_trace.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

ProcessIdentity this_process();

/// Never throws; returns `elsewhere` if the process cannot be read.
Life life_of(const ProcessIdentity& process);

/// State letter and start time from the text of /proc/PID/stat. Its second field, the program's
/// name, may contain any characters.
struct ProcessStat {
    char state = '?';
    std::uint64_t start_ticks = 0;
};
std::optional<ProcessStat> parse_process_stat(const std::string& text);

/// Returns the process that writes the ring file, or nothing if there is none.
std::optional<ProcessIdentity> read_ring_process(const fs::path& ring);

/// The end that the writer of a ring file recorded; nothing if there is no ring.
struct LastWords {
    bool has_end_mark = false;
    int signal = 0;  ///< the last signal from outside that a handler received
};
LastWords read_last_words(const fs::path& ring);

/// Returns one line per thread: id, name, state, and the kernel function in which it waits.
std::string thread_list();

/// The next ranks after one's own, in a circle: each rank is watched by several, and no rank reads
/// the process table of a large node.
class Peers {
  public:
    Peers(fs::path folder, int rank, int ranks);

    /// Returns the worst state: gone (without an end mark), stopped, or running. Reads files.
    Life worst();

  private:
    fs::path folder_;
    std::map<int, ProcessIdentity> known_;
    std::vector<int> unknown_;
};

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

/// Returns the addresses to which a TCP connection of this network namespace resends unacknowledged
/// data, with the seconds since the last answer. Empty if the kernel does not tell.
std::map<std::string, double> unanswered_addresses();

/// Watches the interfaces in `folder` that had a carrier at construction. Loopback and bridges do
/// not count; a bridge loses its carrier with its last container.
class LinkWatch {
  public:
    explicit LinkWatch(fs::path folder = "/sys/class/net");

    /// Returns true if one of them lost its carrier within the last minute and is still without.
    /// Call it every few seconds.
    bool lost_one(double now_s);

  private:
    fs::path folder_;
    std::map<std::string, double> lost_at_s_;  // by name; 0: it has a carrier
};

}  // namespace lockstep
