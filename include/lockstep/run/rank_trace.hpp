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

/// Facts that identify a process: process ids are reused, machines restart.
struct ProcessIdentity {
    std::string boot_id;              ///< differs after each boot
    std::uint64_t pid_namespace = 0;  ///< namespace of `pid`
    std::int64_t pid = 0;             ///< process id
    std::uint64_t start_ticks = 0;    ///< since boot: /proc/PID/stat, field 22
    bool operator==(const ProcessIdentity&) const = default;
};

/// The state of a process. elsewhere: it runs where this process cannot see it. silent: elsewhere,
/// and its node no longer sends heartbeats. cut_off: elsewhere, and its node has no network.
/// unanswering: elsewhere and alive, but messages to its node do not arrive (NodeWatch).
enum class Life { running, stopped, gone, elsewhere, silent, cut_off, unanswering };

/// The end that a rank recorded; `none`: no record, dead or alive.
enum class FlightEnd { none, finished, failed };

/// The progress of a rank's GPU in the first collective that it has not finished.
struct GpuTrace {
    std::uint32_t channel = 0;  ///< channel of the collective
    std::uint64_t seq = 0;      ///< number of the collective; 0: unknown
    int round = 0;              ///< number of its group, inside nodes and between them
    GpuPlace place = GpuPlace::before;
    std::vector<int> missing = {};  ///< ranks whose part has not arrived, if known
    std::uint32_t arrived = 0;      ///< number of other ranks whose parts have arrived
};

/// The record of a rank. Times are seconds since 1970 by the rank's own clock.
struct RankTrace {
    int rank = 0;                     ///< rank of the trace
    int ranks = 1;                    ///< number of ranks of its run
    std::string host;                 ///< its host
    std::int64_t pid = 0;             ///< its process id
    Life life = Life::running;        ///< state of that process
    bool is_running = false;          ///< set-up is over
    Phase phase = Phase::other;       ///< its last phase
    double phase_since_s = 0;         ///< begin of that phase
    double heartbeat_s = 0;           ///< time of its last sign of life
    double warn_s = 60;               ///< FlightSettings::warn_s
    int signal = 0;                   ///< the last signal that a handler received, crashes included
    FlightEnd end = FlightEnd::none;  ///< recorded end
    int exit_code = 0;                ///< with FlightEnd::failed
    std::vector<std::string> channels;  ///< names, by number
    std::vector<FlightEntry> entries;   ///< oldest first, only complete ones
    GpuTrace gpu;                       ///< during long waits of the rank
    std::string asked_by = {};  ///< Life::unanswering: the host that its node does not answer
    double unanswered_s = 0;    ///< duration of that
    std::string
        damage;  ///< the reason why the file could not be read; if not "", only `rank` is valid
};

/// Converts all times of `trace` to another clock; the rank's own clock is `ahead_s` ahead of it.
void put_on_clock(RankTrace& trace, double ahead_s);

/// Reads one ring file with any content, in bounded memory. Of finished collectives only about the
/// newest `most` are kept. Never throws for its content: see RankTrace::damage.
RankTrace read_rank_trace(const fs::path& path,
                          std::size_t most = std::numeric_limits<std::size_t>::max());

/// Reads all rank-NNNNN.ring files of `folder`, by rank. For thousands of ranks it keeps each one's
/// newest collectives, about a million in all. Errors: E663 if there is none.
std::vector<RankTrace> read_rank_traces(const fs::path& folder);

}  // namespace lockstep
