// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/run/trace.hpp"

#include "trace/chrome.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<RankLogFacts> traced_ranks(const fs::path& logs) {
    if (!fs::is_directory(status_of(logs))) return {};
    std::vector<RankLogFacts> ranks = read_log_facts(logs);
    std::erase_if(ranks, [&](const RankLogFacts& rank) {
        return !fs::exists(status_of(trace_path(logs, rank.rank)));
    });
    return ranks;
}

/// The newest start that left traces, or `asked`; 0: none did.
std::int64_t traced_start(const fs::path& root, std::int64_t asked) {
    for (std::int64_t i = asked > 0 ? asked : read_incarnation(root); i >= 1; --i) {
        if (!traced_ranks(RunPaths{root}.logs(i)).empty()) return i;
        if (asked > 0) break;
    }
    return 0;
}

void note(MergedTraces& merged, const StepTrace& trace) {
    merged.ranks.push_back(trace.rank);
    merged.slices += trace.slices.size();
    merged.dropped += trace.dropped;
    if (merged.steps.last == 0) merged.steps = trace.steps;
    merged.steps.first = std::min(merged.steps.first, trace.steps.first);
    merged.steps.last = std::max(merged.steps.last, trace.steps.last);
}

}  // namespace

MergedTraces merge_traces(const fs::path& root, std::int64_t incarnation, const fs::path& out) {
    MergedTraces merged{.incarnation = traced_start(root, incarnation)};
    check(merged.incarnation > 0, [&] {
        return Error("E201",
                     fmt::format("{} of run '{}' has traces",
                                 incarnation > 0 ? fmt::format("no rank of start {}", incarnation)
                                                 : "no start",
                                 root.string()),
                     "ranks write traces if the run is started with --trace",
                     "resume with lockstep train ... --trace steps=FIRST-LAST");
    });
    const fs::path logs = RunPaths{root}.logs(merged.incarnation);
    merged.file = out.empty() ? root / fmt::format("trace-i{}.json", merged.incarnation) : out;
    NewFile file(merged.file, Existing::replaced);
    file.write(bytes_of("{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n"));
    int ranks = 0;
    const std::vector<RankLogFacts> traced = traced_ranks(logs);
    Progress progress("merging traces of ranks", traced.size());
    for (const RankLogFacts& rank : traced) {
        const StepTrace trace = read_trace(trace_path(logs, rank.rank));
        std::string events = merged_events(trace, std::llround(rank.clock_ahead_s * 1e9));
        events.resize(events.size() - 2);  // the last comma
        file.write(bytes_of((merged.ranks.empty() ? "" : ",\n") + events));
        note(merged, trace);
        progress.update(merged.ranks.size());
        ranks = std::max(ranks, trace.ranks);
        merged.correction_s = std::max(merged.correction_s, std::abs(rank.clock_ahead_s));
        merged.error_s = std::max(merged.error_s, rank.clock_error_s);
    }
    file.write(bytes_of("\n]}\n"));
    file.finish();
    for (int rank = 0; rank < ranks; ++rank)
        if (!std::ranges::binary_search(merged.ranks, rank)) merged.missing.push_back(rank);
    return merged;
}

}  // namespace lockstep
