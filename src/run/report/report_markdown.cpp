// SPDX-License-Identifier: Apache-2.0
// All text of the run is escaped: GitHub would take it for markup, links and HTML.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"

#include "report/report_words.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

using Cells = std::vector<std::string>;

constexpr std::size_t most_markdown_rows = 32;

std::string escaped(std::string_view text) {
    constexpr std::string_view special = "\\`*_{}[]()<>#+!|~&@$:";
    std::string out;
    for (const char c : printable(text)) {
        if (special.find(c) != special.npos) out += '\\';
        out += c;
    }
    return out;
}

/// Four spaces make a block in which nothing is markup.
std::string block(const std::string& text) {
    return "\n    " + printable(text) + "\n";
}

std::string table_row(const Cells& cells) {
    std::string line = "|";
    for (const std::string& cell : cells) line += " " + escaped(cell) + " |";
    return line + "\n";
}

/// The first row is the heading. Columns from `numbers` on are aligned to the right.
std::string table(std::size_t numbers, const std::vector<Cells>& rows) {
    std::string text = "\n" + table_row(rows.front()) + "|";
    for (std::size_t i = 0; i < rows.front().size(); ++i)
        text += i < numbers ? " --- |" : " ---: |";
    text += "\n";
    for (std::size_t i = 1; i < rows.size() && i <= most_markdown_rows; ++i)
        text += table_row(rows[i]);
    if (rows.size() > 1 + most_markdown_rows)
        text += fmt::format("\n... and {} more\n", rows.size() - 1 - most_markdown_rows);
    return text;
}

std::string facts_table(const std::vector<ReportFact>& facts) {
    std::vector<Cells> rows{Cells(2)};
    for (const ReportFact& fact : facts) rows.push_back({fact.name, fact.value});
    return table(2, rows);
}

std::string cause_part(const Report& report) {
    if (!report.clues.cause) return "";
    return "\n## Cause\n" + facts_table(cause_facts(*report.clues.cause));
}

std::string findings_part(const Report& report) {
    std::string text = "\n## Findings\n";
    for (const ReportFinding& finding : report.findings) {
        text += fmt::format(
            "\n**{}** {}\n", finding_weight_name(finding.weight), escaped(finding.title));
        if (!finding.advice.empty()) text += "\n" + escaped(finding.advice) + "\n";
        if (!finding.command.empty()) text += block(finding.command);
    }
    return text;
}

std::string facts_part(const Report& report) {
    std::string text = "\n## What ran\n" + facts_table(report.facts);
    const auto& placement = report.placement.rows;
    if (placement.size() > 1)
        text += "\n### Placement\n" + table(placement.front().size(), placement);
    return text;
}

std::string curves_part(const Report& report) {
    if (report.charts.empty()) return "";
    std::vector<Cells> rows{{"figure", "curve", "first", "last", "least", "most"}};
    for (const ReportChart& chart : report.charts)
        for (const ReportCurve& curve : chart.curves)
            rows.push_back(
                {chart.title,
                 curve.name,
                 figure_text(curve.points.front().value),
                 figure_text(curve.last),
                 fmt::format("{} at step {}", figure_text(curve.best_low), curve.low_step),
                 fmt::format("{} at step {}", figure_text(curve.best_high), curve.high_step)});
    return "\n## Curves\n" + table(2, rows);
}

std::string budget_part(const Report& report) {
    if (report.mean.steps == 0) return "";
    return fmt::format("\n## Where a step goes\n\n{} on average over {} steps of start {}\n",
                       step_length_text(report.mean.wall_s()),
                       report.mean.steps,
                       report.incarnation) +
           table(2, budget_rows(report, most_markdown_rows));
}

std::string starts_part(const RunStatus& status) {
    if (status.starts.empty()) return "";
    std::vector<Cells> parts{{"part", "time", "share"}},
        starts{{"start", "began", "took", "steps"}};
    for (const TimePart& part : time_parts(status.times))
        parts.push_back({std::string(part.word.name),
                         duration_text(part.seconds),
                         share_of(part.seconds, status.times.elapsed)});
    for (const StartRecord& start : status.starts)
        starts.push_back({fmt::format("{}", start.incarnation),
                          utc_text(start.began_unix_s),
                          start_length(start),
                          start_steps(start)});
    return "\n## Starts and goodput\n" + table(1, parts) + table(4, starts);
}

}  // namespace

std::string report_markdown(const Report& report) {
    std::string text = fmt::format("# {}\n\n{}\n", escaped(report.run()), escaped(report.outcome));
    text += cause_part(report) + findings_part(report) + facts_part(report) + curves_part(report) +
            budget_part(report) + starts_part(report.clues.status);
    text += "\n## Next\n" + block(report.clues.next);
    if (!report.clues.resume.empty()) text += block(report.clues.resume);
    return text;
}

}  // namespace lockstep
