// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/text_table.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_text_rows = 16, bar_letters = 50, curve_lines = 8;

std::string heading(std::string_view title) {
    return fmt::format("\n{}\n", title);
}

std::string facts_text(std::string_view title, const std::vector<ReportFact>& facts) {
    std::string text = heading(title);
    for (const ReportFact& fact : facts)
        text += fmt::format("  {:<17} {}\n", fact.name, fact.value);
    return text;
}

std::string cause_text(const Report& report) {
    return report.clues.cause ? facts_text("cause", cause_facts(*report.clues.cause)) : "";
}

std::string findings_text(const Report& report) {
    constexpr std::size_t indent = 11, width = 89;
    std::string text = heading("findings");
    for (const ReportFinding& finding : report.findings) {
        text += fmt::format("  {:<8} {}\n",
                            finding_weight_name(finding.weight),
                            wrapped(finding.title, indent, width));
        if (!finding.advice.empty())
            text += std::string(indent, ' ') + wrapped(finding.advice, indent, width) + "\n";
        if (!finding.command.empty()) text += fmt::format("           $ {}\n", finding.command);
    }
    return text;
}

std::string placement_text(const PlacementTable& placement) {
    if (placement.rows.size() < 2) return "";
    auto rows = placement.rows;
    rows.resize(std::min(rows.size(), 1 + most_text_rows));
    std::string text = heading("placement") + text_table(rows, Align::left, Align::left);
    if (placement.rows.size() > rows.size())
        text += fmt::format("  and {} more ranks\n", placement.rows.size() - rows.size());
    for (const std::string& note : placement.notes) text += "  " + printable(note) + "\n";
    return text;
}

/// First, last, and some between.
std::string curve_text(const ReportCurve& curve) {
    std::string values;
    const std::size_t count = std::min(curve.points.size(), curve_lines);
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t at = count == 1 ? 0 : i * (curve.points.size() - 1) / (count - 1);
        values += (values.empty() ? "" : "  ") + figure_text(curve.points[at].value);
    }
    return values;
}

std::string curves_text(const Report& report) {
    if (report.charts.empty()) return "";
    std::string text = heading("curves, from the first report to the last");
    for (const ReportChart& chart : report.charts)
        for (const ReportCurve& curve : chart.curves) {
            const std::string name =
                chart.kind == ChartKind::loss ? curve.name + " " + chart.title : chart.title;
            text += fmt::format("  {:<18} {}\n", name, curve_text(curve));
            text += fmt::format("  {:<18} least {} at step {}, most {} at step {}, last {}\n",
                                "",
                                figure_text(curve.best_low),
                                curve.low_step,
                                figure_text(curve.best_high),
                                curve.high_step,
                                figure_text(curve.last));
        }
    return text;
}

/// A bar of letters, each its share of `whole`: rounded so that their sum is.
std::string letter_bar(const MeanStep& mean, double whole_s) {
    std::string bar;
    double sum_s = 0;
    for (const Phase phase : phase_order) {
        sum_s += mean.phases[phase];
        const double end = std::round(sum_s / whole_s * static_cast<double>(bar_letters));
        if (std::isfinite(end) && end > static_cast<double>(bar.size()))
            bar.resize(std::min(static_cast<std::size_t>(end), bar_letters),
                       phase_word(phase).letter);
    }
    return bar;
}

std::string budget_text(const Report& report) {
    if (report.mean.steps == 0) return "";
    std::string text = heading(fmt::format("a step: {} on average over {} steps of start {}",
                                           step_length_text(report.mean.wall_s()),
                                           report.mean.steps,
                                           report.incarnation));
    for (const Phase phase : shown_phases(report)) {
        const double seconds = report.mean.phases[phase];
        const PartWord& word = phase_word(phase);
        text += fmt::format("  {} {:<22} {:>9} {:>7}\n",
                            word.letter,
                            word.name,
                            step_length_text(seconds),
                            share_of(seconds, report.mean.wall_s()));
    }
    const auto rows = rank_rows(report.ranks, most_text_rows);
    double longest_s = 0;
    for (const auto& row : rows) longest_s = std::max(longest_s, row.mean.wall_s());
    text += "  by rank:\n";
    for (const auto& row : rows)
        text += fmt::format("  {:<9} {:>9} |{:<{}}| {}\n",
                            ranks_label(row.first, row.last),
                            step_length_text(row.mean.wall_s()),
                            letter_bar(row.mean, longest_s),
                            bar_letters,
                            row.hosts);
    return text;
}

/// A digit for each column: tenths of the median beyond it, "9" for twice as much and more.
std::string heat_text(const Report& report) {
    const HeatMap& heat = report.heat;
    if (heat.rows.size() < 2) return "";
    constexpr std::size_t columns = 60;
    std::string text = heading(
        "own time of ranks against the median, over steps (. usual, - quicker, 1 to 9: 10 to 90 % "
        "more)");
    const std::size_t each = (heat.first_step.size() + columns - 1) / columns;
    for (const HeatRow& row : heat.rows) {
        std::string line;
        for (std::size_t i = 0; i < row.ratio.size(); i += each) {
            double most = -1;
            for (std::size_t j = i; j < std::min(i + each, row.ratio.size()); ++j)
                if (std::isfinite(row.ratio[j])) most = std::max(most, row.ratio[j]);
            const int tenths =
                static_cast<int>(std::clamp(std::floor(10 * (most - 1) + 1e-9), -1.0, 9.0));
            line += most < 0      ? ' '
                    : most < 0.9  ? '-'
                    : tenths <= 0 ? '.'
                                  : static_cast<char>('0' + tenths);
        }
        text += fmt::format("  {:<9} {:>5} |{}|\n",
                            ranks_label(row.first, row.last),
                            std::isfinite(row.mean) ? fmt::format("{:.2f}", row.mean) : "-",
                            line);
    }
    return text;
}

std::string starts_text(const RunStatus& status) {
    if (status.starts.empty()) return "";
    std::string text = heading(fmt::format("starts: goodput {} of {}",
                                           share_of(status.times.training, status.times.elapsed),
                                           duration_text(status.times.elapsed)));
    for (const StartRecord& start : status.starts)
        text += fmt::format("  {}: {} | {} | {}\n",
                            start.incarnation,
                            utc_text(start.began_unix_s),
                            start_length(start),
                            start_steps(start));
    for (const TimePart& part : time_parts(status.times))
        text += fmt::format("  {:<24} {:>9} {:>7}\n",
                            part.word.name,
                            duration_text(part.seconds),
                            share_of(part.seconds, status.times.elapsed));
    return text;
}

}  // namespace

std::string report_text(const Report& report) {
    std::string text = fmt::format("{}: {}\n", plain_text(report.run()), report.outcome);
    text += cause_text(report) + findings_text(report) + facts_text("what ran", report.facts) +
            placement_text(report.placement) + curves_text(report) + budget_text(report) +
            heat_text(report) + starts_text(report.clues.status);
    text += "\nnext: " + report.clues.next + "\n";
    const ReportClues& clues = report.clues;
    if (!clues.resume.empty())
        text += fmt::format("{}: {}\n", going_on_label(clues.status), clues.resume);
    return text;
}

}  // namespace lockstep
