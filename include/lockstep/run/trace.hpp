// SPDX-License-Identifier: Apache-2.0
/// @file
/// The trace of a rank over a few steps: rank-NNNNN.trace.json.gz next to its log, in Chrome's
/// format as Kineto, PyTorch's profiler, writes it.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

/// Steps from `first` to `last`, both included; last 0: none.
struct TraceSteps {
    std::int64_t first = 0, last = 0;
    bool operator==(const TraceSteps&) const = default;
};

/// Reads "steps=50-60", "steps=50" and "none". Errors: E103.
TraceSteps parse_trace_steps(const GivenValue& given);

/// Returns a text that parse_trace_steps() reads.
std::string trace_steps_text(const TraceSteps& steps);

/// The kind of a slice: a step, a phase within one, or a collective, which overlaps phases.
enum class SliceKind { step, phase, collective };

/// An interval of a rank's time. Times are nanoseconds since 1970 by the rank's own clock.
struct TraceSlice {
    SliceKind kind = SliceKind::step;
    std::string name;       ///< "ProfilerStep#50", "backward", "reduce 3", "publish"
    std::int64_t step = 0;  ///< step that it belongs to
    std::int64_t begin_ns = 0, end_ns = 0;

    // For collectives: the seq-th of its channel, the same on all ranks.
    std::uint32_t channel = 0;
    std::uint64_t seq = 0;
    std::int32_t bucket = -1;    ///< -1: none
    std::uint64_t bytes = 0;     ///< bytes of one rank
    std::int64_t waited_ns = 0;  ///< time that the rank waited in it, at its end

    bool operator==(const TraceSlice&) const = default;
};

/// The trace of one rank. Slices of one lane are either disjoint or nested.
struct StepTrace {
    int rank = 0;
    int ranks = 1;             ///< number of ranks of the run
    std::string host;          ///< its host
    std::int64_t pid = 0;      ///< its process id
    TraceSteps steps;          ///< requested steps
    std::int64_t dropped = 0;  ///< number of slices that were not kept
    std::vector<TraceSlice> slices;

    static constexpr std::size_t most_slices = 100'000;  ///< about 12 MiB
    bool operator==(const StepTrace&) const = default;
};

/// Returns "rank 3 on n2".
std::string name_of(const StepTrace& trace);

/// Returns "`logs`/rank-00003.trace.json.gz"; `logs` is a start's folder of logs.
fs::path trace_path(const fs::path& logs, int rank);

/// Replaces `path` (0600). Times are rounded to a quarter of a microsecond, the precision of the
/// format's floating-point microseconds since 1970. Errors: E401, E402, E405.
void write_trace(const fs::path& path, const StepTrace& trace);

/// Reads a file of write_trace(). Errors: E201, E202, E222 if it is no such file.
StepTrace read_trace(const fs::path& path);

/// The result of merge_traces().
struct MergedTraces {
    std::int64_t incarnation = 0;          ///< start of the traces
    fs::path file;                         ///< file written
    std::vector<int> ranks;                ///< by rank
    std::vector<int> missing;              ///< ranks without a trace
    TraceSteps steps;                      ///< steps of all of them
    std::uint64_t slices = 0;              ///< number of slices of all ranks
    std::int64_t dropped = 0;              ///< StepTrace::dropped of all ranks
    double correction_s = 0, error_s = 0;  ///< largest clock correction and error
};

/// Merges all ranks' traces of start `incarnation` (0: the newest that has any) of the run in
/// `root`, on rank 0's clock, into one JSON file (0600): `out`, or RUN/trace-iN.json. Arrows join
/// the slices of one collective. Only one rank's trace is in memory at a time. Errors: E201 if
/// there is none; those of read_trace(); E401, E402, E405.
MergedTraces merge_traces(const fs::path& root, std::int64_t incarnation, const fs::path& out = {});

}  // namespace lockstep
