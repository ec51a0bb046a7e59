// SPDX-License-Identifier: Apache-2.0
// One file: no script, no font, no picture from elsewhere, which a content security policy in the
// page's head forbids besides. Names and messages of a run may be anything, <script> too: all text
// goes through html_text().
#include "lockstep/core/clock.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/version.hpp"

#include "report/html_parts.hpp"
#include "report/report_style.hpp"
#include "report/svg_charts.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// The top of the page.

std::string pill(RunCondition condition) {
    constexpr std::array<std::string_view, 3> css{"good", "open", "bad"}, marks{"✓", "•", "✕"};
    const auto mood = static_cast<std::size_t>(mood_of(condition));
    return fmt::format("<span class=\"pill {}\">{} {}</span>",
                       css[mood],
                       marks[mood],
                       run_condition_name(condition));
}

std::string tile(std::string_view name, const std::string& value, const std::string& note) {
    return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n",
                       html_text(name),
                       html_text(value),
                       html_text(note));
}

std::string curve_tiles(const Report& report) {
    std::string tiles;
    for (const ReportChart& chart : report.charts) {
        const ReportCurve& curve = chart.curves.front();
        if (chart.kind == ChartKind::learning_rate) continue;
        const bool is_good_high = chart.kind != ChartKind::loss;
        tiles += tile(chart.curves.size() > 1 ? curve.name + " " + chart.title : chart.title,
                      figure_text(curve.last),
                      fmt::format("{} {}",
                                  is_good_high ? "most" : "least",
                                  figure_text(is_good_high ? curve.best_high : curve.best_low)));
    }
    return tiles;
}

std::string tiles_of(const Report& report) {
    const RunStatus& status = report.clues.status;
    std::string tiles = tile("steps",
                             count_words(reached_step(status)),
                             status.steps_total > 0 ? "of " + count_words(status.steps_total) : "");
    if (status.times.elapsed > 0)
        tiles += tile("goodput",
                      share_of(status.times.training, status.times.elapsed),
                      "of " + duration_text(status.times.elapsed));
    if (report.mean.steps > 0)
        tiles += tile("a step",
                      step_length_text(report.mean.wall_s()),
                      fmt::format("mean of {}", count_words(report.mean.steps)));
    tiles += curve_tiles(report);
    if (status.starts.size() > 1)
        tiles += tile("starts",
                      fmt::format("{}", status.starts.size()),
                      duration_text(status.times.down) + " between them");
    return "<dl class=\"tiles\">\n" + tiles + "</dl>\n";
}

std::string header_of(const Report& report) {
    return fmt::format("<header>\n{}<h1>{}</h1>\n<p class=\"outcome\">{}{}</p>\n{}</header>\n",
                       html_paragraph("kicker", "Lockstep run report"),
                       html_text(report.run()),
                       pill(report.clues.status.condition),
                       html_text(report.outcome),
                       tiles_of(report));
}

// Words.

std::string facts_list(const std::vector<ReportFact>& facts, std::string_view attributes) {
    std::string list = fmt::format("<dl class=\"facts\"{}>\n", attributes);
    for (const ReportFact& fact : facts)
        list += fmt::format(
            "<div><dt>{}</dt><dd>{}</dd></div>\n", html_text(fact.name), html_text(fact.value));
    return list + "</dl>\n";
}

std::string cause_section(const Report& report) {
    if (!report.clues.cause) return "";
    return html_section(
        "Cause",
        facts_list(cause_facts(*report.clues.cause), " style=\"grid-template-columns:1fr\""));
}

std::string findings_section(const Report& report) {
    std::string cards;
    for (const ReportFinding& finding : report.findings) {
        const std::string_view weight = finding_weight_name(finding.weight);
        cards += fmt::format(
            "<div class=\"finding {0}\"><p class=\"title\"><span "
            "class=\"weight\">{0}</span>{1}</p>\n",
            weight,
            html_text(finding.title));
        if (!finding.advice.empty()) cards += "<p>" + html_text(finding.advice) + "</p>\n";
        if (!finding.command.empty()) cards += "<pre>" + html_text(finding.command) + "</pre>\n";
        cards += "</div>\n";
    }
    return html_section("Findings", cards);
}

std::string facts_section(const Report& report) {
    std::string content = facts_list(report.facts, "");
    const PlacementTable& placement = report.placement;
    if (!placement.rows.empty()) {
        content += "<h3>Placement</h3>\n";
        for (const std::string& note : placement.notes) content += html_paragraph("note", note);
        content +=
            html_table("placement", placement.columns, placement.columns.size(), placement.rows);
    }
    return html_section("What ran", content);
}

std::string next_section(const Report& report) {
    std::string content = "<pre>" + html_text(report.clues.next) + "</pre>\n";
    if (!report.clues.resume.empty())
        content +=
            fmt::format("<p class=\"note\" style=\"margin-top:12px\">{}:</p>\n<pre>{}</pre>\n",
                        going_on_label(report.clues.status),
                        html_text(report.clues.resume));
    return html_section("Next", content);
}

/// The classes of bars' parts: in drawings, in legends, and the letters on them.
std::string part_styles() {
    constexpr std::array dark{"forward", "comm", "wait", "save", "train", "repeat"};
    constexpr std::array all{"forward",
                             "backward",
                             "update",
                             "data",
                             "copy",
                             "comm",
                             "wait",
                             "save",
                             "evaluate",
                             "other",
                             "train",
                             "repeat",
                             "start",
                             "down"};
    std::string css;
    for (const std::string_view name : all) {
        const bool is_dark = std::ranges::find(dark, name) != dark.end();
        const std::string_view ink = is_dark ? "--on-dark" : "--on-light";
        css += fmt::format(
            ".c-{0}{{fill:var(--{0})}}.k-{0}{{background:var(--{0});color:var({1})}}svg "
            ".in-{0}{{fill:var({1});font-weight:600}}\n",
            name,
            ink);
    }
    for (std::size_t i = 0; i < heat_levels.size(); ++i)
        css += fmt::format(".h{0}{{fill:var(--h{0});background:var(--h{0})}}", i);
    return css + "\n";
}

}  // namespace

std::string report_html(const Report& report) {
    std::string page = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src "
        "'unsafe-inline'\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta "
        "name=\"color-scheme\" content=\"light dark\">\n"
        "<title>{}: Lockstep run report</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n",
        html_text(report.run()),
        report_style(),
        part_styles());
    page += header_of(report) + cause_section(report) + findings_section(report) +
            html_curves(report) + html_budget(report) + html_heat_map(report) +
            html_starts(report.clues.status) + facts_section(report) + next_section(report);
    return page +
           fmt::format(
               "<footer>Made by lockstep {} at {} from the run's directory alone: <code>lockstep "
               "report {} --format html</code></footer>\n</main>\n</body>\n</html>\n",
               html_text(version_text()),
               utc_text(unix_time_s()),
               html_text(shell_word(report.run())));
}

}  // namespace lockstep
