// SPDX-License-Identifier: Apache-2.0
// The report as text for terminals, as Markdown and as JSON.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/text_table.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <cmath>
#include <ranges>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Text for terminals.

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

// Markdown. All text of the run is escaped: GitHub would take it for markup, links and HTML.

using Cells = std::vector<std::string>;
constexpr std::size_t most_markdown_rows = 32;

std::string escaped(std::string_view text) {
    return backslashed(printable(text), "\\`*_{}[]()<>#+!|~&@$:");
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

// JSON. The keys are documented in docs/report.md; later versions only add some.

Json cause_json(const RootCause& cause) {
    Json json = json_of(cause.error);
    json["trouble"] = cause.trouble.empty() ? Json() : Json(cause.trouble);
    json["consequences"] = cause.followers;
    return json;
}

Json json_of(const ReportFinding& finding) {
    return {{"kind", finding.kind},
            {"weight", finding_weight_name(finding.weight)},
            {"title", finding.title},
            {"advice", finding.advice},
            {"command", finding.command.empty() ? Json() : Json(finding.command)}};
}

Json json_of(const PlacementTable& placement) {
    Json rows = Json::array();
    for (const auto& row : placement.rows | std::views::drop(1)) {
        Json cells = Json::object();
        for (std::size_t i = 0; i < row.size(); ++i) cells[placement.rows.front()[i]] = row[i];
        rows.push_back(std::move(cells));
    }
    return rows;
}

Json json_of(const ReportCurve& curve, std::int64_t batch) {
    Json points = Json::array();
    for (const ReportPoint& point : curve.points) {
        Json one{{"step", point.step},
                 {"value", point.value},
                 {"least", point.least},
                 {"most", point.most}};
        if (batch > 0)
            one["samples"] = static_cast<double>(point.step) * static_cast<double>(batch);
        points.push_back(std::move(one));
    }
    Json json{{"name", curve.name},
              {"last", curve.last},
              {"least", curve.best_low},
              {"least_step", curve.low_step},
              {"most", curve.best_high},
              {"most_step", curve.high_step}};
    json["points"] = std::move(points);
    return json;
}

Json json_of(const MeanStep& mean) {
    Json phases = Json::object();
    for (const Phase phase : phase_order) phases[phase_name(phase)] = mean.phases[phase];
    return {{"steps", mean.steps}, {"wall_s", mean.wall_s()}, {"phases_s", std::move(phases)}};
}

Json json_of(const ReportRank& rank) {
    Json json{{"rank", rank.first}, {"host", rank.hosts}};
    json.update(json_of(rank.mean));
    if (!rank.damage.empty()) json["damage"] = rank.damage;
    return json;
}

/// JSON has no NaN: what is not known is null.
Json json_of(const HeatMap& heat) {
    Json json{{"last_step", heat.last_step}};
    json["first_step"] = heat.first_step;
    json["rows"] = Json::array();
    for (const HeatRow& row : heat.rows) {
        Json one{{"first_rank", row.first}, {"last_rank", row.last}, {"mean", row.mean}};
        one["ratio"] = row.ratio;
        json["rows"].push_back(std::move(one));
    }
    return json;
}

template <class Items>
Json list_of(const Items& items) {
    Json list = Json::array();
    for (const auto& item : items) list.push_back(json_of(item));
    return list;
}

}  // namespace

std::string report_text(const Report& report) {
    std::string text = fmt::format("{}: {}\n", plain_text(report.run()), report.outcome);
    if (report.clues.cause) text += facts_text("cause", cause_facts(*report.clues.cause));
    text += findings_text(report) + facts_text("what ran", report.facts) +
            placement_text(report.placement) + curves_text(report) + budget_text(report) +
            heat_text(report) + starts_text(report.clues.status);
    text += "\nnext: " + report.clues.next + "\n";
    const ReportClues& clues = report.clues;
    if (!clues.resume.empty())
        text += fmt::format("{}: {}\n", going_on_label(clues.status), clues.resume);
    return text;
}

std::string report_markdown(const Report& report) {
    std::string text = fmt::format("# {}\n\n{}\n", escaped(report.run()), escaped(report.outcome));
    if (report.clues.cause) text += "\n## Cause\n" + facts_table(cause_facts(*report.clues.cause));
    text += findings_part(report) + facts_part(report) + curves_part(report) + budget_part(report) +
            starts_part(report.clues.status);
    text += "\n## Next\n" + block(report.clues.next);
    if (!report.clues.resume.empty()) text += block(report.clues.resume);
    return text;
}

Json report_json(const Report& report) {
    Json json{
        {"run", report.run()}, {"incarnation", report.incarnation}, {"outcome", report.outcome}};
    json["cause"] = report.clues.cause ? cause_json(*report.clues.cause) : Json();
    json["findings"] = list_of(report.findings);
    json["facts"] = Json::object();
    for (const ReportFact& fact : report.facts) json["facts"][fact.name] = fact.value;
    json["placement"] = json_of(report.placement);
    json["charts"] = Json::array();
    for (const ReportChart& chart : report.charts) {
        Json curves = Json::array();
        for (const ReportCurve& curve : chart.curves)
            curves.push_back(json_of(curve, report.batch));
        json["charts"].push_back({{"title", chart.title}, {"curves", std::move(curves)}});
    }
    json["step"] = json_of(report.mean);
    json["ranks"] = list_of(report.ranks);
    json["stragglers"] = list_of(report.stragglers);
    json["heat_map"] = json_of(report.heat);
    json["status"] = status_json(report.clues.status);
    json["next"] = report.clues.next;
    json["resume"] = report.clues.resume.empty() ? Json() : Json(report.clues.resume);
    return json;
}

}  // namespace lockstep
