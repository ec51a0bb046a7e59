// SPDX-License-Identifier: Apache-2.0
#include "run_history.hpp"

#include "lockstep/observe/run_directory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace lockstep {
namespace {

/// Steps that one report covers, and what they took.
struct StepsReport {
    std::int64_t first = 0, last = 0;
    double train_s = 0, save_s = 0;
};

struct StartLog {
    StartRecord record;
    std::vector<StepsReport> reports;
};

double number_in(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
}

std::int64_t step_in(const Json& record) {
    return static_cast<std::int64_t>(number_in(record, "step"));
}

void add_report(StartLog& log, const Json& record, double time_s) {
    const double wall_s = number_in(record, "wall_s");
    const auto phases = record.find("phases");
    const double save_s = phases != record.end() ? number_in(*phases, "checkpoint") : 0.0;
    if (log.reports.empty())
        log.record.first_report_s = std::max(time_s - wall_s - log.record.began_unix_s, 0.0);
    const std::int64_t before =
        log.reports.empty() ? log.record.from_step : log.reports.back().last;
    log.reports.push_back(
        {std::max<std::int64_t>(before, 0), step_in(record), wall_s - save_s, save_s});
    log.record.to_step = step_in(record);
    log.record.epoch = static_cast<std::int64_t>(number_in(record, "epoch"));
}

void add_line(StartLog& log, const std::string& line) {
    const auto record = Json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("t") || !record["t"].is_number()) return;
    const double time_s = record["t"].get<double>();
    if (log.record.began_unix_s == 0) log.record.began_unix_s = time_s;
    log.record.ended_unix_s = std::max(log.record.ended_unix_s, time_s);
    const auto event = record.find("event");
    if (event == record.end()) return;
    if (*event == "first_step" && log.record.from_step < 0)
        log.record.from_step = std::max<std::int64_t>(step_in(record) - 1, 0);
    if (*event == "steps") add_report(log, record, time_s);
    if (*event == "evaluation") log.record.evaluate_s += number_in(record, "seconds");
}

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

StartLog read_log(const fs::path& root, std::int64_t incarnation) {
    StartLog log;
    log.record.incarnation = incarnation;
    std::ifstream lines(RunPaths{root}.logs(incarnation) / "rank-00000.jsonl");
    for (std::string line; std::getline(lines, line);) add_line(log, line);
    log.record.step_s = recent_step_s(log.reports);
    return log;
}

/// Where a report's steps are kept only in part, so is its time.
void sum_up(StartLog& log, std::int64_t kept_until) {
    for (const StepsReport& report : log.reports) {
        const auto steps =
            static_cast<double>(std::max<std::int64_t>(report.last - report.first, 1));
        const auto kept = static_cast<double>(std::min(report.last, kept_until) - report.first);
        log.record.train_s += report.train_s;
        log.record.save_s += report.save_s;
        log.record.kept_s += report.train_s * std::clamp(kept / steps, 0.0, 1.0);
    }
}

}  // namespace

std::vector<StartRecord> read_starts(const fs::path& root,
                                     std::int64_t incarnation,
                                     std::int64_t saved_step) {
    std::vector<StartRecord> starts;
    std::int64_t kept_until =
        saved_step < 0 ? std::numeric_limits<std::int64_t>::max() : saved_step;
    for (std::int64_t i = incarnation; i >= 1; --i) {
        StartLog log = read_log(root, i);
        if (log.record.began_unix_s == 0) continue;
        sum_up(log, kept_until);
        if (log.record.from_step >= 0) kept_until = std::min(kept_until, log.record.from_step);
        starts.push_back(log.record);
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
