// SPDX-License-Identifier: Apache-2.0
// The report is one file: no script, no font, no picture from elsewhere; a content security policy
// in the page's head also forbids these. Names and messages of a run may contain anything, even
// <script>: all text goes through html_text(). Colours are variables, so that dark screens change
// only their values. The parts of bars carry letters, and each chart has a table: no meaning
// depends on colour alone.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/version.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// The style sheet: light and dark by the reader's system, and paper.
constexpr std::string_view style = R"(
:root{color-scheme:light dark;
--paper:#fcfcfa;--card:#fff;--ink:#1d2126;--soft:#5c646d;--faint:#dfe2e0;--grid:#ebedeb;
--good:#2b7350;--bad:#b3332b;--open:#8a6410;--tint:#f4f5f2;
--s0:#22648f;--s1:#b5571a;
--forward:#22648f;--backward:#5793ba;--update:#a3c9e1;--data:#e0962f;--copy:#f0c987;
--comm:#7857a3;--wait:#c4544c;--save:#35785a;--evaluate:#97bb73;--other:#b4b6b1;
--train:#22648f;--repeat:#c4544c;--start:#e0962f;--down:#8b8f96;
--h0:#b9d7e8;--h1:#edeeea;--h2:#fbdcae;--h3:#f4b160;--h4:#e07b34;--h5:#bb4426;--h6:#7d1d1f;
--on-dark:#fff;--on-light:#1d2126}
@media (prefers-color-scheme:dark){:root{
--paper:#14171a;--card:#1b1f23;--ink:#e7e9e6;--soft:#9ea6ad;--faint:#343a40;--grid:#282d32;
--good:#6fc096;--bad:#f0857b;--open:#dcb35c;--tint:#20252a;
--s0:#6fb4e0;--s1:#f0a060;
--forward:#3b84b5;--backward:#6facd3;--update:#b5d7ec;--data:#e6a145;--copy:#f3d29a;
--comm:#a283cf;--wait:#dc6d64;--save:#4f9c78;--evaluate:#a6c984;--other:#7d8287;
--train:#3b84b5;--repeat:#dc6d64;--start:#e6a145;--down:#666c73;
--h0:#2f5167;--h1:#2a2f34;--h2:#5e4a2a;--h3:#94662a;--h4:#cc7a33;--h5:#ec9562;--h6:#ffd0b5}}
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","DejaVu Sans",sans-serif;
font-variant-numeric:tabular-nums;-webkit-text-size-adjust:100%}
main{max-width:1060px;margin:0 auto;padding:40px 28px 64px}
p{margin:0 0 .7em;max-width:74ch}
h1{font-size:30px;line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:2px 0 14px;overflow-wrap:anywhere}
h2{font-size:19px;font-weight:650;letter-spacing:-.005em;margin:52px 0 6px;padding-top:14px;border-top:1px solid var(--faint)}
h3{font-size:14px;font-weight:600;margin:26px 0 8px}
.kicker{color:var(--soft);font-size:13px;margin:0}
.outcome{font-size:17px;line-height:1.5;overflow-wrap:anywhere}
.pill{display:inline-block;border:1.5px solid currentColor;border-radius:999px;padding:0 10px;
font-size:13px;font-weight:650;line-height:1.7;margin-right:8px;vertical-align:1.5px}
.good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}
.note{color:var(--soft);font-size:14px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(138px,1fr));gap:1px;margin:26px 0 0;
background:var(--faint);border:1px solid var(--faint);border-radius:10px;overflow:hidden}
.tiles div{background:var(--card);padding:12px 16px 13px}
.tiles dt{color:var(--soft);font-size:12.5px}
.tiles dd{margin:1px 0 0;font-size:22px;font-weight:600;letter-spacing:-.01em;line-height:1.3}
.tiles small{display:block;color:var(--soft);font-size:12.5px;font-weight:400;letter-spacing:0}
.finding{background:var(--card);border:1px solid var(--faint);border-left:4px solid var(--soft);
border-radius:8px;padding:12px 18px 13px;margin:12px 0;break-inside:avoid}
.finding.problem{border-left-color:var(--bad)}.finding.warning{border-left-color:var(--open)}
.finding p{margin:0 0 3px;max-width:none;overflow-wrap:anywhere}
.finding .title{font-weight:600}
.weight{font-size:12px;font-weight:650;text-transform:uppercase;letter-spacing:.06em;margin-right:8px}
.problem .weight{color:var(--bad)}.warning .weight{color:var(--open)}.note .weight{color:var(--soft)}
pre,code{font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
pre{background:var(--tint);border-radius:6px;margin:8px 0 0;padding:8px 12px;white-space:pre-wrap;overflow-wrap:anywhere}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(320px,100%),1fr));gap:0 36px;margin:12px 0 0}
.facts div{display:flex;gap:14px;border-bottom:1px solid var(--grid);padding:5px 0}
.facts dt{color:var(--soft);flex:0 0 128px}
.facts dd{margin:0;overflow-wrap:anywhere;min-width:0}
.scroll{overflow-x:auto;margin:10px 0 0}
table{border-collapse:collapse;font-size:13.5px;min-width:100%}
th,td{text-align:left;padding:5px 18px 5px 0;white-space:nowrap;border-bottom:1px solid var(--grid)}
th{color:var(--soft);font-weight:500;border-bottom-color:var(--faint);vertical-align:bottom}
.n{text-align:right;padding-right:22px}
th.n{white-space:normal;line-height:1.25}
td.wrap{white-space:normal;overflow-wrap:anywhere}
details{margin:12px 0 0}summary{cursor:pointer;color:var(--soft);font-size:14px}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(440px,100%),1fr));gap:26px 30px;margin-top:14px}
figure{margin:0;break-inside:avoid}
figcaption{font-size:14px;font-weight:600;margin-bottom:2px}
.wide{margin-top:14px;overflow-x:auto}.wide svg{min-width:640px}
svg.chart{display:block;width:100%;height:auto;overflow:visible}
svg text{font-size:12px;fill:var(--soft)}
svg .label{fill:var(--ink)}
.grid{stroke:var(--grid)}.axis{stroke:var(--soft)}
.line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}
.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1);stroke-dasharray:6 4}
.dot.s0{fill:var(--s0)}.dot.s1{fill:var(--s1)}
.band{opacity:.18}.band.s0{fill:var(--s0)}.band.s1{fill:var(--s1)}
svg .name{font-weight:600}svg .name.s0{fill:var(--s0)}svg .name.s1{fill:var(--s1)}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:5px 20px;margin:14px 0 6px;padding:0;font-size:13.5px}
.legend li{display:flex;align-items:center;gap:7px}
.key{display:inline-block;width:19px;height:19px;border-radius:3px;font-size:12px;font-weight:600;line-height:19px;text-align:center}
footer{margin-top:56px;border-top:1px solid var(--faint);padding-top:14px;color:var(--soft);font-size:13px}
@media print{:root{color-scheme:light}body{font-size:11pt}main{max-width:none;padding:0}
h2{break-after:avoid;margin-top:26px}.charts{grid-template-columns:1fr 1fr}
*{print-color-adjust:exact;-webkit-print-color-adjust:exact}}
)";

using HtmlCells = std::vector<std::string>;

std::string html_note(std::string_view text) {
    return fmt::format("<p class=\"note\">{}</p>\n", html_text(text));
}

/// Returns `content` below a heading.
std::string html_section(std::string_view title, const std::string& content) {
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", html_text(title), content);
}

/// Returns a table that screen readers call `name`; its first row is its heading. Columns from
/// `numbers` on are aligned to the right. A long table is collapsed.
std::string html_table(std::string_view name,
                       std::size_t numbers,
                       std::span<const HtmlCells> rows) {
    constexpr std::size_t open_rows = 16;
    const auto row_of = [&](const HtmlCells& cells, std::string_view tag) {
        std::string row = "<tr>";
        for (std::size_t i = 0; i < cells.size(); ++i)
            row += fmt::format("<{}{}>{}</{}>",
                               tag,
                               i < numbers ? "" : " class=\"n\"",
                               html_text(cells[i]),
                               tag.substr(0, 2));
        return row + "</tr>\n";
    };
    std::string table = fmt::format(
        "<div class=\"scroll\" role=\"region\" tabindex=\"0\" "
        "aria-label=\"{}\"><table>\n<thead>{}</thead>\n<tbody>\n",
        html_text(name),
        row_of(rows.front(), "th scope=\"col\""));
    rows = rows.subspan(1);
    for (const HtmlCells& row : rows) table += row_of(row, "td");
    table += "</tbody></table></div>\n";
    if (rows.size() <= open_rows) return table;
    return fmt::format("<details><summary>{}, {} rows</summary>\n{}</details>\n",
                       html_text(name),
                       rows.size(),
                       table);
}

/// Returns a legend of the parts of bars, each with a note.
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

std::string tiles_of(const Report& report) {
    const RunStatus& status = report.clues.status;
    std::string tiles = tile("steps",
                             count_words(reached_step(status)),
                             status.steps_total > 0 ? "of " + count_words(status.steps_total) : "");
    if (status.times.elapsed > 0)
        tiles += tile("goodput",
                      share_of(status.times.training, status.times.elapsed),
                      "of " + duration_text(status.times.elapsed) + ", spent on kept steps");
    if (report.mean.steps > 0)
        tiles += tile("a step",
                      step_length_text(report.mean.wall_s()),
                      fmt::format("mean of {}", count_words(report.mean.steps)));
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
    if (status.starts.size() > 1)
        tiles += tile("starts",
                      fmt::format("{}", status.starts.size()),
                      duration_text(status.times.down) + " between them");
    return "<dl class=\"tiles\">\n" + tiles + "</dl>\n";
}

std::string header_of(const Report& report) {
    return fmt::format(
        "<header>\n<p class=\"kicker\">Lockstep run report</p>\n<h1>{}</h1>\n<p "
        "class=\"outcome\">{}{}</p>\n{}</header>\n",
        html_text(report.run()),
        pill(report.clues.status.condition),
        html_text(report.outcome),
        tiles_of(report));
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
        html_note("Of all starts. Where a point stands for several reports it is their mean, and "
                  "the pale band their range." +
                  batch) +
            "<div class=\"charts\">\n" + figures + "</div>\n" + html_table("curves", 2, rows));
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

std::string html_budget(const Report& report) {
    if (report.mean.steps == 0) return "";
    const std::vector<Phase> phases = shown_phases(report);
    const BarChart chart = bars_of_ranks(report, phases);
    HtmlCells shares;
    for (const Phase phase : phases)
        shares.push_back(share_of(report.mean.phases[phase], report.mean.wall_s()));
    return html_section(
        "Where a step goes",
        html_note(fmt::format("Mean of the {} newest steps of start {}, without its first. "
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
    const auto known = [](double ratio) { return ratio > 0 ? ratio : 0; };
    HtmlCells hosts;
    std::vector<HtmlCells> rows{{"rank", "node", "mean", "most", "at update"}};
    for (const HeatRow& row : heat.rows) {
        const auto rank = std::ranges::find(report.ranks, row.first, &ReportRank::first);
        hosts.push_back(rank == report.ranks.end() ? "" : rank->hosts);
        const auto most = std::ranges::max_element(row.ratio, {}, known);
        const auto column = static_cast<std::size_t>(most - row.ratio.begin());
        rows.push_back({ranks_label(row.first, row.last),
                        hosts.back(),
                        std::isfinite(row.mean) ? fmt::format("{:.2f}", row.mean) : "-",
                        fmt::format("{:.2f}", known(*most)),
                        count_words(heat.first_step[column])});
    }
    std::string legend = "<ul class=\"legend\">\n";
    for (std::size_t i = 0; i < heat_levels.size(); ++i)
        legend += fmt::format("<li><span class=\"key h{}\" aria-hidden=\"true\"></span>{}</li>\n",
                              i,
                              heat_levels[i].name);
    return html_section(
        "Ranks over time",
        html_note(
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
    if (placement.rows.size() > 1) {
        content += "<h3>Placement</h3>\n";
        for (const std::string& note : placement.notes) content += html_note(note);
        content += html_table("placement", placement.rows.front().size(), placement.rows);
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
    std::vector<std::string_view> all;
    for (const Phase phase : phase_order) all.push_back(phase_word(phase).css);
    all.insert(all.end(), {"train", "repeat", "start", "down"});
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
        style,
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
