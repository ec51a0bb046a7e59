// SPDX-License-Identifier: Apache-2.0
#include "report/report_words.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/root_cause.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::array<PartWord, static_cast<std::size_t>(Phase::count)> phase_words{{
    {'D', "data", "data"},
    {'F', "forward", "forward"},
    {'B', "backward", "backward"},
    {'C', "exposed communication", "comm"},
    {'W', "waiting for ranks", "wait"},
    {'U', "update", "update"},
    {'S', "saving", "save"},
    {'E', "evaluating", "evaluate"},
    {'O', "other", "other"},
    {'G', "copying to the GPU", "copy"},
}};

}  // namespace

const PartWord& phase_word(Phase phase) {
    return phase_words.at(static_cast<std::size_t>(phase));
}

std::vector<Phase> shown_phases(const Report& report) {
    std::vector<Phase> shown;
    for (const Phase phase : phase_order)
        if (std::ranges::any_of(
                report.ranks, [&](const ReportRank& rank) { return rank.mean.phases[phase] > 0; }))
            shown.push_back(phase);
    return shown;
}

std::vector<TimePart> time_parts(const RunTimes& times) {
    std::vector<TimePart> parts{{{'T', "steps that count", "train"}, times.training},
                                {{'R', "steps done again or lost", "repeat"}, times.repeated},
                                {{'S', "saving", "save"}, times.saving},
                                {{'E', "evaluating", "evaluate"}, times.evaluating},
                                {{'I', "starting", "start"}, times.starting},
                                {{'-', "between starts", "down"}, times.down},
                                {{'O', "other", "other"}, times.other}};
    constexpr double shortest_s = 0.0005;
    std::erase_if(parts, [](const TimePart& part) { return part.seconds < shortest_s; });
    return parts;
}

std::string share_of(double part, double whole) {
    if (!(whole > 0)) return "-";
    const double percent = 100 * part / whole;
    return percent > 0 && percent < 9.95 ? fmt::format("{:.1f} %", percent)
                                         : fmt::format("{:.0f} %", percent);
}

std::string step_length_text(double seconds) {
    const bool in_ms = seconds < 0.9995;
    const double value = in_ms ? seconds * 1e3 : seconds;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return fmt::format("{:.{}f} {}", value, digits, in_ms ? "ms" : "s");
}

std::string figure_text(double value) {
    const double size = std::abs(value);
    if (size >= 9999.5 && size < 1e15)
        return (value < 0 ? "-" : "") + grouped(static_cast<std::uint64_t>(std::llround(size)));
    return fmt::format("{:.4g}", value);
}

std::string count_words(std::int64_t count) {
    return grouped(static_cast<std::uint64_t>(std::max<std::int64_t>(count, 0)));
}

std::string ranks_label(int first, int last) {
    return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

std::vector<ReportRow> rank_rows(std::span<const ReportRank> ranks, std::size_t most) {
    const std::size_t each = (ranks.size() + most - 1) / std::max<std::size_t>(most, 1);
    std::vector<ReportRow> rows;
    for (std::size_t i = 0; i < ranks.size(); i += each) {
        const auto part = ranks.subspan(i, std::min(each, ranks.size() - i));
        const std::string &first = part.front().host, &last = part.back().host;
        ReportRow row{part.front().rank,
                      part.back().rank,
                      first == last ? first : first + " ... " + last,
                      {}};
        double known = 0;
        for (const ReportRank& rank : part) {
            if (rank.mean.steps == 0) continue;
            ++known;
            row.mean.steps = std::max(row.mean.steps, rank.mean.steps);
            row.mean.phases += rank.mean.phases;
        }
        for (double& seconds : row.mean.phases) seconds /= std::max(known, 1.0);
        rows.push_back(std::move(row));
    }
    return rows;
}

std::vector<std::vector<std::string>> budget_rows(const Report& report, std::size_t most) {
    const std::vector<Phase> phases = shown_phases(report);
    std::vector<std::vector<std::string>> rows{{"ranks", "node", "a step"}};
    for (const Phase phase : phases) rows.front().emplace_back(phase_word(phase).name);
    for (const ReportRow& row : rank_rows(report.ranks, most)) {
        const double wall_s = row.mean.wall_s();
        auto& cells = rows.emplace_back();
        cells = {ranks_label(row.first, row.last), row.hosts, step_length_text(wall_s)};
        for (const Phase phase : phases) cells.push_back(share_of(row.mean.phases[phase], wall_s));
    }
    return rows;
}

std::vector<ReportFact> cause_facts(const RootCause& cause) {
    const RankError& error = cause.error;
    std::vector<ReportFact> facts{
        {"where", cause_title(cause)},
        {"what", plain_text(error.what)},
        {"why", plain_text(error.why)},
        {"fix", plain_text(error.fix)},
        {"when", error.time_s > 0 ? utc_text(error.time_s) : ""},
        {"consequence",
         cause.followers.empty() ? "" : ranks_text(cause.followers) + " ended for it"}};
    std::erase_if(facts, [](const ReportFact& fact) { return fact.value.empty(); });
    return facts;
}

std::int64_t reached_step(const RunStatus& status) {
    const std::int64_t reported = status.starts.empty() ? 0 : status.starts.back().to_step;
    return std::max(status.step, reported);
}

std::string start_steps(const StartRecord& start) {
    if (start.from_step < 0) return "no step";
    const std::string from = count_words(start.from_step);
    if (start.to_step < 0) return fmt::format("from step {}, without a report", from);
    return fmt::format("steps {} to {}", from, count_words(start.to_step));
}

std::string start_length(const StartRecord& start) {
    return duration_text(std::max(start.ended_unix_s - start.began_unix_s, 0.0));
}

ReportMood mood_of(RunCondition condition) {
    using enum RunCondition;
    if (condition == complete) return ReportMood::good;
    const bool is_bad = condition == failed || condition == lost || condition == stuck;
    return is_bad ? ReportMood::bad : ReportMood::open;
}

}  // namespace lockstep
