// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/trace.hpp"

#include "trace/chrome.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<RankLogFacts> traced_ranks(const fs::path& logs) {
    std::error_code none;
    if (!fs::is_directory(logs, none)) return {};
    std::vector<RankLogFacts> ranks = read_log_facts(logs);
    std::erase_if(ranks, [&](const RankLogFacts& rank) {
        return !fs::exists(trace_path(logs, rank.rank), none);
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

/// Grows beside its place, and takes it when it is whole.
class MergedFile {
  public:
    explicit MergedFile(fs::path path)
        : path_(std::move(path)),
          partial_(path_.parent_path() / fmt::format(".{}.partial", path_.filename().string())),
          file_(open_for_writing(partial_, O_WRONLY | O_CREAT | O_TRUNC)) {
        check(static_cast<bool>(file_),
              [&] { return system_error("create", partial_.string(), errno); });
        write("{\"displayTimeUnit\": \"ms\",\n\"traceEvents\": [\n");
    }
    ~MergedFile() {
        std::error_code ignored;
        if (file_) fs::remove(partial_, ignored);
    }
    MergedFile& operator=(MergedFile&&) = delete;

    void add(const StepTrace& trace, std::int64_t ahead_ns) {
        std::string events = merged_events(trace, ahead_ns);
        events.resize(events.size() - 2);  // the last comma
        write((std::exchange(is_first_, false) ? "" : ",\n") + events);
    }

    void finish() {
        write("\n]}\n");
        if (::rename(partial_.c_str(), path_.c_str()) != 0)
            throw system_error("create", path_.string(), errno);
        file_.reset();
    }

  private:
    void write(const std::string& text) { write_all(file_.value(), bytes_of(text), partial_); }

    fs::path path_, partial_;
    UniqueFd file_;
    bool is_first_ = true;
};

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
    MergedFile file(merged.file);
    int ranks = 0;
    const std::vector<RankLogFacts> traced = traced_ranks(logs);
    Progress progress("merging traces of ranks", traced.size());
    for (const RankLogFacts& rank : traced) {
        const StepTrace trace = read_trace(trace_path(logs, rank.rank));
        file.add(trace, std::llround(rank.clock_ahead_s * 1e9));
        note(merged, trace);
        progress.update(merged.ranks.size());
        ranks = std::max(ranks, trace.ranks);
        merged.correction_s = std::max(merged.correction_s, std::abs(rank.clock_ahead_s));
        merged.error_s = std::max(merged.error_s, rank.clock_error_s);
    }
    file.finish();
    for (int rank = 0; rank < ranks; ++rank)
        if (!std::ranges::binary_search(merged.ranks, rank)) merged.missing.push_back(rank);
    return merged;
}

}  // namespace lockstep
