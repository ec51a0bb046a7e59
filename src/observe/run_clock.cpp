// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/run_clock.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"

#include "run_lines.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// How far rank 0's clock is ahead of the file system's, by the last line of its log.
std::optional<double> ahead_of_files_s(const fs::path& log) {
    constexpr std::int64_t end_bytes = 64 << 10;
    try {
        RunLines lines(log);
        if (lines.size() == 0) return {};
        const double written_s = 1e-9 * static_cast<double>(file_stamp(log).time_ns);
        double last_s = 0;
        lines.choose_last(end_bytes);
        while (const auto line = lines.next()) {
            const auto json = try_parse_json(*line);
            const Json* const time = json ? json->find("t") : nullptr;
            if (time && time->is_number()) last_s = time->get<double>();
        }
        if (last_s > 0) return last_s - written_s;
    } catch (const Error&) {
        // It is gone, or no log.
    }
    return {};
}

}  // namespace

RunClock::RunClock(std::vector<RankLogFacts> ranks, fs::path log)
    : ranks_(std::move(ranks)), log_(std::move(log)) {}

double RunClock::ahead_s(int rank) const {
    const auto found = std::ranges::find(ranks_, rank, &RankLogFacts::rank);
    return found == ranks_.end() ? 0 : found->clock_ahead_s;
}

std::optional<double> RunClock::ahead_on(std::string_view host) const {
    const auto found = std::ranges::find(ranks_, host, &RankLogFacts::host);
    if (host.empty() || found == ranks_.end()) return {};
    return found->clock_ahead_s;
}

double RunClock::present_s(double here_s, std::string_view host, double heard_s) const {
    if (const auto ahead_s = ahead_on(host)) return here_s - *ahead_s;
    const auto is_likely = [&](double now_s) {
        return now_s > heard_s - early_s && now_s < heard_s + server_silence_s;
    };
    if (heard_s <= 0 || is_likely(here_s)) return here_s;
    const double by_files_s = here_s + ahead_of_files_s(log_).value_or(0);
    return is_likely(by_files_s) ? by_files_s : here_s;
}

RunClock read_run_clock(const fs::path& folder) {
    try {
        return RunClock(read_log_facts(folder), folder / "rank-00000.jsonl");
    } catch (const Error&) {
        return {};
    }
}

}  // namespace lockstep
