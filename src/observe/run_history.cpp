// SPDX-License-Identifier: Apache-2.0
#include "run_history.hpp"

#include "lockstep/observe/run_directory.hpp"

#include "run_log.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {

std::vector<StartRecord> read_starts(const fs::path& root,
                                     std::int64_t incarnation,
                                     std::int64_t saved_step,
                                     const RunClock& clock) {
    std::vector<StartRecord> starts;
    std::int64_t kept_until =
        saved_step < 0 ? std::numeric_limits<std::int64_t>::max() : saved_step;
    for (std::int64_t i = incarnation; i >= 1; --i) {
        const fs::path log = RunPaths{root}.logs(i) / "rank-00000.jsonl";
        StartRecord start = read_start(log, i, kept_until);
        if (start.began_unix_s == 0) continue;
        const double ahead_s = i == incarnation ? 0 : clock.ahead_on(start.host).value_or(0);
        start.began_unix_s -= ahead_s;
        start.ended_unix_s -= ahead_s;
        if (start.from_step >= 0) kept_until = std::min(kept_until, start.from_step);
        starts.push_back(start);
    }
    std::ranges::reverse(starts);
    return starts;
}

RunTimes run_times(std::span<const StartRecord> starts, double end_unix_s) {
    RunTimes times;
    if (starts.empty()) return times;
    times.elapsed = std::max(end_unix_s - starts.front().began_unix_s, 0.0);
    double ended_s = starts.front().began_unix_s;
    for (const StartRecord& start : starts) {
        const bool is_last = &start == &starts.back();
        times.down += std::max(start.began_unix_s - ended_s, 0.0);
        ended_s = is_last ? end_unix_s : start.ended_unix_s;
        times.training += start.kept_s;
        times.repeated += start.train_s - start.kept_s;
        times.saving += start.save_s;
        times.evaluating += start.evaluate_s;
        times.starting +=
            start.to_step < 0 ? std::max(ended_s - start.began_unix_s, 0.0) : start.first_report_s;
    }
    times.other = std::max(times.elapsed - times.training - times.repeated - times.saving -
                               times.evaluating - times.starting - times.down,
                           0.0);
    return times;
}

}  // namespace lockstep
