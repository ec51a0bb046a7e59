// SPDX-License-Identifier: Apache-2.0
// What the kernel tells of processes and threads: those of this process, and whether another of
// this machine is still the one that it was.
#pragma once

#include "lockstep/run/rank_trace.hpp"

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

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

}  // namespace lockstep
