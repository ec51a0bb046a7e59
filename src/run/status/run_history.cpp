// SPDX-License-Identifier: Apache-2.0
#include "run_history.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/run_directory.hpp"

#include "logs/rank_log.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <variant>

namespace lockstep {
namespace {

constexpr std::int64_t whole_bytes = 512 << 10;  // a log up to this size is read whole
constexpr std::int64_t window_bytes = 64 << 10;  // records have 1 to 2 kB
constexpr std::int64_t window_growth = 16;       // if other lines lie between reports
constexpr std::int64_t most_bytes = 16 << 20;    // at each end
constexpr std::int64_t most_whole = 64 << 20;    // of a longer log only its ends are read

/// Steps that one report covers, and what they took.
struct StepsReport {
    std::int64_t first = 0, last = 0;
    double train_s = 0, save_s = 0;
    std::optional<StartSums> so_far{};  ///< with this report; logs of older versions have none
};

struct StartLog {
    StartRecord record;
    std::vector<StepsReport> reports;
    double evaluated_since_s = 0;  ///< since the last report
};

void add_report(StartLog& log, const StepsEvent& event, double time_s) {
    const double save_s = event.report.phases[Phase::checkpoint];
    if (log.reports.empty())
        log.record.first_report_s = std::max(time_s - event.wall_s - log.record.began_unix_s, 0.0);
    const std::int64_t before =
        log.reports.empty() ? log.record.from_step : log.reports.back().last;
    log.reports.push_back({std::max<std::int64_t>(before, 0),
                           event.report.step,
                           event.wall_s - save_s,
                           save_s,
                           event.so_far});
    log.evaluated_since_s = 0;
    log.record.to_step = event.report.step;
    log.record.epoch = event.report.epoch;
}

void add_entry(StartLog& log, const LogEntry& entry) {
    StartRecord& record = log.record;
    if (std::isnan(entry.time_s)) return;
    if (record.began_unix_s == 0) record.began_unix_s = entry.time_s;
    if (record.host.empty()) record.host = entry.host;
    record.ended_unix_s = std::max(record.ended_unix_s, entry.time_s);
    if (const auto* const first = std::get_if<FirstStepEvent>(&entry.event);
        first && record.from_step < 0)
        record.from_step = std::max<std::int64_t>(first->step - 1, 0);
    if (const auto* const steps = std::get_if<StepsEvent>(&entry.event))
        add_report(log, *steps, entry.time_s);
    if (const auto* const evaluation = std::get_if<EvaluationEvent>(&entry.event)) {
        record.evaluate_s += evaluation->seconds;
        log.evaluated_since_s += evaluation->seconds;
    }
}

/// A log, of which parts can be read.
class LogFile {
  public:
    explicit LogFile(const fs::path& path) : lines_(path), size_(lines_.size()) {}
    std::int64_t size() const { return size_; }

    /// The lines that begin at or after byte `from`, but for the first, and before byte `to`.
    StartLog read(std::int64_t from, std::int64_t to) {
        StartLog log;
        lines_.choose(from, std::min(to, size_));
        while (const auto line = lines_.next())
            if (const auto entry = log_entry_in(*line)) add_entry(log, *entry);
        return log;
    }

    /// Returns the part of the log's begin that has a report.
    StartLog read_head() {
        StartLog head;
        for (std::int64_t bytes = window_bytes; bytes <= most_bytes && head.reports.empty();
             bytes *= window_growth)
            head = read(0, bytes);
        return head;
    }

    /// Returns the part of the log's end that has two reports: the first does not know where its
    /// steps begin.
    StartLog read_tail() {
        StartLog tail;
        for (std::int64_t bytes = window_bytes; bytes <= most_bytes && tail.reports.size() < 2;
             bytes *= window_growth)
            tail = read(std::max<std::int64_t>(size() - bytes, 0), size());
        return tail;
    }

  private:
    LogLines lines_;
    std::int64_t size_ = 0;  // when it was opened; it is read so far
};

double recent_step_s(const std::vector<StepsReport>& reports) {
    constexpr std::size_t most = 10;
    double seconds = 0;
    std::int64_t steps = 0;
    for (std::size_t i = reports.size() - std::min(reports.size(), most); i < reports.size(); ++i) {
        seconds += reports[i].train_s + reports[i].save_s;
        steps += reports[i].last - reports[i].first;
    }
    return steps > 0 ? seconds / static_cast<double>(steps) : -1;
}

/// If a report's steps are kept only in part, so is its time.
double kept_of(const StepsReport& report, std::int64_t kept_until) {
    const auto steps = static_cast<double>(std::max<std::int64_t>(report.last - report.first, 1));
    const auto kept = static_cast<double>(std::min(report.last, kept_until) - report.first);
    return report.train_s * std::clamp(kept / steps, 0.0, 1.0);
}

StartRecord sum_up(const StartLog& log, std::int64_t kept_until) {
    StartRecord record = log.record;
    record.step_s = recent_step_s(log.reports);
    for (const StepsReport& report : log.reports) {
        record.train_s += report.train_s;
        record.save_s += report.save_s;
        record.kept_s += kept_of(report, kept_until);
    }
    return record;
}

/// Seconds of steps up to `kept_until`, from the one place in the log where they end. Nothing where
/// the reports there carry no sums.
std::optional<double> kept_before(LogFile& file, std::int64_t kept_until) {
    std::int64_t low = 0, high = file.size();
    while (high - low > 2 * window_bytes) {
        const std::int64_t middle = low + (high - low) / 2;
        const StartLog part = file.read(middle, middle + window_bytes);
        if (part.reports.empty()) return std::nullopt;
        (part.reports.front().last < kept_until ? low : high) = middle;
    }
    // A window more on both sides: but for the log's first, a part's first report does not know
    // where its steps begin.
    const std::int64_t from = std::max<std::int64_t>(low - window_bytes, 0);
    const StartLog part = file.read(from, high + window_bytes);
    for (std::size_t i = from > 0 ? 1 : 0; i < part.reports.size(); ++i) {
        const StepsReport& report = part.reports[i];
        if (report.last < kept_until) continue;
        if (!report.so_far) return std::nullopt;
        return report.so_far->train_s - report.train_s + kept_of(report, kept_until);
    }
    return std::nullopt;
}

/// By the share of the steps that count.
double kept_share(const StartRecord& record, std::int64_t kept_until) {
    const auto all = static_cast<double>(
        std::max<std::int64_t>(record.to_step - std::max<std::int64_t>(record.from_step, 0), 1));
    const auto kept = static_cast<double>(kept_until - record.from_step);
    return record.train_s * std::clamp(kept / all, 0.0, 1.0);
}

/// From both ends of a long log; nothing where that does not do, and all can be read.
std::optional<StartRecord> read_ends(LogFile& file, std::int64_t kept_until) {
    const bool is_readable = file.size() <= most_whole;
    const StartLog head = file.read_head(), tail = file.read_tail();
    const bool has_sums = !tail.reports.empty() && tail.reports.back().so_far;
    if (is_readable && (head.reports.empty() || tail.reports.size() < 2 || !has_sums))
        return std::nullopt;
    StartRecord record = tail.record;
    record.began_unix_s = head.record.began_unix_s;
    record.from_step = head.record.from_step;
    record.first_report_s = head.record.first_report_s;
    if (!has_sums) return record;
    // The first report of the tail does not know where its steps begin.
    const std::vector<StepsReport> recent(tail.reports.begin() + 1, tail.reports.end());
    const StartSums& sums = *tail.reports.back().so_far;
    record.step_s = recent_step_s(recent);
    record.train_s = record.kept_s = sums.train_s;
    record.save_s = sums.save_s;
    record.evaluate_s = sums.evaluate_s + tail.evaluated_since_s;
    if (kept_until >= record.to_step) return record;
    const auto kept = kept_until <= record.from_step ? 0.0 : kept_before(file, kept_until);
    if (!kept && is_readable) return std::nullopt;
    record.kept_s = kept.value_or(kept_share(record, kept_until));
    return record;
}

/// The start `incarnation` by the log of its rank 0; began_unix_s 0 where there is none. Of a log
/// over half a mebibyte only both ends are read, and where a part of its steps counts the place
/// where that part ends: reports carry sums. Of one over 64 MiB no more is read whatever it holds.
/// `kept_until`: the last step that counts.
StartRecord read_start(const fs::path& log, std::int64_t incarnation, std::int64_t kept_until) {
    LogFile file(log);
    std::optional<StartRecord> record;
    if (file.size() > whole_bytes) record = read_ends(file, kept_until);
    if (!record) record = sum_up(file.read(0, file.size()), kept_until);
    record->incarnation = incarnation;
    if (file.size() > most_whole && record->to_step < 0)
        once(Level::warn,
             "'{}' has no report near its end: how long start {} trained is not known",
             log.string(),
             incarnation);
    return *record;
}

}  // namespace

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
