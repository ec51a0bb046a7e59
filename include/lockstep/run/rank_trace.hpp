// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads the ring file of a rank from another process, while the rank runs or afterwards.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace lockstep {

/// Enough to know a process again: process ids are reused, machines restart.
struct ProcessIdentity {
    std::string boot_id;              ///< of the machine's present uptime
    std::uint64_t pid_namespace = 0;  ///< inside which `pid` means something
    std::int64_t pid = 0;             ///< of the process
    std::uint64_t start_ticks = 0;    ///< since boot: /proc/PID/stat, field 22
    bool operator==(const ProcessIdentity&) const = default;
};

/// The kernel's state of a process. elsewhere: it runs where this process cannot see it; silent:
/// there, and its node beats no more; cut_off: there, and its node has no network; unanswering:
/// there, and alive, but what is sent to its node does not arrive (NodeWatch).
enum class Life { running, stopped, gone, elsewhere, silent, cut_off, unanswering };

/// What a rank said of its end; `none`: nothing, dead or alive.
enum class FlightEnd { none, finished, failed };

/// Where a rank's GPU is, in the first collective that it has not finished.
struct GpuTrace {
    std::uint32_t channel = 0;  ///< of the collective
    std::uint64_t seq = 0;      ///< likewise; 0: nothing is known
    int round = 0;              ///< of the collective's, inside nodes and between them
    GpuPlace place = GpuPlace::before;
    std::vector<int> missing = {};  ///< ranks whose part has not arrived, where that is known
    std::uint32_t arrived = 0;      ///< how many others' parts have
};

/// Times are seconds since 1970 by the rank's own clocks.
struct RankTrace {
    int rank = 0;                       ///< whose trace this is
    int ranks = 1;                      ///< of its run
    std::string host;                   ///< on which it ran
    std::int64_t pid = 0;               ///< there
    Life life = Life::running;          ///< of that process
    bool is_running = false;            ///< set-up is over
    Phase phase = Phase::other;         ///< that it was in last
    double phase_since_s = 0;           ///< when that began
    double heartbeat_s = 0;             ///< when it last showed that it lives
    double warn_s = 60;                 ///< FlightSettings::warn_s
    int signal = 0;                     ///< the last one that a handler saw; a crash's, too
    FlightEnd end = FlightEnd::none;    ///< what it said of its end
    int exit_code = 0;                  ///< with FlightEnd::failed
    std::vector<std::string> channels;  ///< names, by number
    std::vector<FlightEntry> entries;   ///< oldest first, those that were written whole
    GpuTrace gpu;                       ///< while the rank waits long
    std::string asked_by = {};  ///< Life::unanswering: the host that its node does not answer
    double unanswered_s = 0;    ///< likewise, for so long
    std::string damage;  ///< not "": why the file could not be read; only `rank` means something
};

/// Puts all times of `trace` on another clock, which the rank's own is `ahead_s` ahead of.
void put_on_clock(RankTrace& trace, double ahead_s);

/// Reads one ring file, whatever is in it, in bounded memory. Of collectives that are over only the
/// newest `most` or so are kept. Never throws for its content: see RankTrace::damage.
RankTrace read_rank_trace(const fs::path& path,
                          std::size_t most = std::numeric_limits<std::size_t>::max());

/// All rank-NNNNN.ring files of `folder`, by rank; of thousands of ranks each one's newest
/// collectives, for a million in all. Errors: E663 if there is none.
std::vector<RankTrace> read_rank_traces(const fs::path& folder);

}  // namespace lockstep
