// SPDX-License-Identifier: Apache-2.0
#include "report/html_parts.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"

#include "report/svg_charts.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t open_table_rows = 16;

enum class CellKind { heading, value };

std::string html_row(const HtmlCells& cells, CellKind kind, std::size_t numbers) {
    const std::string_view tag = kind == CellKind::heading ? "th scope=\"col\"" : "td";
    std::string row = "<tr>";
    for (std::size_t i = 0; i < cells.size(); ++i)
        row += fmt::format("<{}{}>{}</{}>",
                           tag,
                           i < numbers ? "" : " class=\"n\"",
                           html_text(cells[i]),
                           tag.substr(0, 2));
    return row + "</tr>\n";
}

constexpr std::size_t most_bars = 32, most_table_rows = 64;

/// Bars in seconds or milliseconds, whichever is easier to read.
BarChart bars_of_ranks(const Report& report, const std::vector<Phase>& phases) {
    const double unit_s = report.mean.wall_s() < 1 ? 1e-3 : 1;
    BarChart chart{
        .title = "mean step of each rank by phase",
        .description =
            "One bar for each rank, or for neighbouring ranks; the table below has the numbers.",
        .axis = unit_s < 1 ? "milliseconds a step" : "seconds a step"};
    for (const Phase phase : phases) chart.parts.push_back(phase_word(phase));
    for (const auto& row : rank_rows(report.ranks, most_bars)) {
        BarRow bar{ranks_label(row.first, row.last) + (row.hosts.empty() ? "" : " · " + row.hosts),
                   step_length_text(row.mean.wall_s()),
                   {}};
        for (const Phase phase : phases) bar.values.push_back(row.mean.phases[phase] / unit_s);
        chart.rows.push_back(std::move(bar));
    }
    return chart;
}

}  // namespace

std::string html_text(std::string_view text) {
    static const std::map<char, std::string_view> entities = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
    std::string out;
    for (const char c : printable(text)) {
        const auto found = entities.find(c);
        out += found == entities.end() ? std::string_view(&c, 1) : found->second;
    }
    return out;
}

std::string html_paragraph(std::string_view css, std::string_view text) {
    return fmt::format("<p class=\"{}\">{}</p>\n", css, html_text(text));
}

std::string html_section(std::string_view title, const std::string& content) {
    if (content.empty()) return "";
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_text(title), content);
}

std::string html_table(std::string_view name,
                       std::size_t numbers,
                       std::span<const HtmlCells> rows) {
    std::string table = fmt::format(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
        "aria-label=\"{}\"><table>\n<thead>{}</thead>\n<tbody>\n",
        html_text(name),
        html_row(rows.front(), CellKind::heading, numbers));
    rows = rows.subspan(1);
    for (const HtmlCells& row : rows) table += html_row(row, CellKind::value, numbers);
    table += "</tbody></table></div>\n";
    if (rows.size() <= open_table_rows) return table;
    return fmt::format("<details><summary>{}, {} rows</summary>\n{}</details>\n",
                       html_text(name),
                       rows.size(),
                       table);
}

std::string html_legend(const std::vector<PartWord>& parts, const HtmlCells& notes) {
    std::string legend = "<ul class=\"legend\">\n";
    for (std::size_t i = 0; i < parts.size(); ++i)
        legend +=
            fmt::format("<li><span class=\"key k-{}\" aria-hidden=\"true\">{}</span>{} {}</li>\n",
                        parts[i].css,
                        parts[i].letter,
                        html_text(parts[i].name),
                        html_text(notes[i]));
    return legend + "</ul>\n";
}

std::string html_curves(const Report& report) {
    if (report.charts.empty()) return "";
    std::string figures;
    std::vector<HtmlCells> rows{
        {"figure", "curve", "first", "last", "least", "at update", "most", "at update"}};
    for (std::size_t i = 0; i < report.charts.size(); ++i) {
        const ReportChart& chart = report.charts[i];
        figures += fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n",
                               html_text(chart.title),
                               line_chart(chart, report.batch, fmt::format("curve{}", i)));
        for (const ReportCurve& curve : chart.curves)
            rows.push_back({chart.title,
                            curve.name,
                            figure_text(curve.points.front().value),
                            figure_text(curve.last),
                            figure_text(curve.best_low),
                            count_words(curve.low_step),
                            figure_text(curve.best_high),
                            count_words(curve.high_step)});
    }
    const std::string batch =
        report.batch > 0
            ? fmt::format(" Samples are updates times the batch of {}.", count_words(report.batch))
            : "";
    return html_section(
        "Curves",
        html_paragraph(
            "note",
            "Of all starts. Where a point stands for several reports it is their mean, and "
            "the pale band their range." +
                batch) +
            "<div class=\"charts\">\n" + figures + "</div>\n" + html_table("curves", 2, rows));
}

std::string html_budget(const Report& report) {
    if (report.mean.steps == 0) return "";
    const std::vector<Phase> phases = shown_phases(report);
    const BarChart chart = bars_of_ranks(report, phases);
    HtmlCells shares;
    for (const Phase phase : phases)
        shares.push_back(share_of(report.mean.phases[phase], report.mean.wall_s()));
    return html_section(
        "Where a step goes",
        html_paragraph("note",
                       fmt::format("Mean of the {} newest steps of start {}, without its first. "
                                   "The phases of a rank sum to the wall time of its step.",
                                   count_words(report.mean.steps),
                                   report.incarnation)) +
            html_legend(chart.parts, shares) + "<div class=\"wide\">" +
            stacked_bars(chart, "budget") + "</div>\n" +
            html_table("a step by rank", 2, budget_rows(report, most_table_rows)));
}

std::string html_heat_map(const Report& report) {
    const HeatMap& heat = report.heat;
    if (heat.rows.empty()) return "";
    HtmlCells hosts;
    std::vector<HtmlCells> rows{{"rank", "node", "mean", "most", "at update"}};
    for (const HeatRow& row : heat.rows) {
        const auto rank = std::ranges::find(report.ranks, row.first, &ReportRank::rank);
        hosts.push_back(rank == report.ranks.end() ? "" : rank->host);
        double most = 0;
        std::size_t column = 0;
        for (std::size_t i = 0; i < row.ratio.size(); ++i)
            if (row.ratio[i] > most) {
                most = row.ratio[i];
                column = i;
            }
        rows.push_back({ranks_label(row.first, row.last),
                        hosts.back(),
                        std::isfinite(row.mean) ? fmt::format("{:.2f}", row.mean) : "-",
                        fmt::format("{:.2f}", most),
                        count_words(heat.first_step[column])});
    }
    std::string legend = "<ul class=\"legend\">\n";
    for (std::size_t i = 0; i < heat_levels.size(); ++i)
        legend += fmt::format("<li><span class=\"key h{}\" aria-hidden=\"true\"></span>{}</li>\n",
                              i,
                              heat_levels[i].name);
    return html_section(
        "Ranks over time",
        html_paragraph(
            "note",
            "What a rank's steps took without waiting for others, in times of the median of all "
            "ranks in the same steps; of one rank alone, of all its steps. A dark row is a slow "
            "rank, a dark column a slow moment.") +
            legend + "</ul>\n<div class=\"wide\">" + heat_chart(heat, hosts, "heat") + "</div>\n" +
            html_table("ranks over time", 2, rows));
}

std::string html_starts(const RunStatus& status) {
    if (status.starts.empty() || !(status.times.elapsed > 0)) return "";
    const double unit_s = status.times.elapsed < 180 ? 1 : status.times.elapsed < 10800 ? 60 : 3600;
    BarChart chart{.title = "where the time since the first start went",
                   .description = "One bar from the first line of the log to the end.",
                   .axis = unit_s == 1    ? "seconds"
                           : unit_s == 60 ? "minutes"
                                          : "hours"};
    chart.rows.push_back({"all starts", duration_text(status.times.elapsed), {}});
    HtmlCells notes;
    for (const TimePart& part : time_parts(status.times)) {
        chart.parts.push_back(part.word);
        chart.rows.front().values.push_back(part.seconds / unit_s);
        notes.push_back(fmt::format(
            "{}, {}", duration_text(part.seconds), share_of(part.seconds, status.times.elapsed)));
    }
    std::vector<HtmlCells> rows{
        {"start", "began", "steps", "took", "to its first step", "saving", "evaluating"}};
    for (const StartRecord& start : status.starts)
        rows.push_back({fmt::format("{}", start.incarnation),
                        utc_text(start.began_unix_s),
                        start_steps(start),
                        start_length(start),
                        duration_text(start.first_report_s),
                        duration_text(start.save_s),
                        duration_text(start.evaluate_s)});
    return html_section("Starts and goodput",
                        html_legend(chart.parts, notes) + "<div class=\"wide\">" +
                            stacked_bars(chart, "starts") + "</div>\n" +
                            html_table("starts", 3, rows));
}

}  // namespace lockstep
