// SPDX-License-Identifier: Apache-2.0
// The commands status and diagnose: the state of runs, and that of the ranks of one.
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/text_table.hpp"
#include "lockstep/run/verdict.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* status_help =
    R"(Reads only the run directory, on any host that sees the files. It needs no rights in SLURM and no
connection to the job. Phases: starting, running, stuck (a row names the rank), checkpointed (can be
resumed), complete, failed, and lost: the run is marked as running, but its process is gone.

Goodput is the share of the time since the first start that was spent on steps that count. The rest
is lost: steps done again, saving, evaluating, starting, waiting between starts.

Examples:
  lockstep status runs/a
  lockstep status --all             # the runs below runs/
  lockstep status --all /scratch/me --json
  lockstep status --all runs/sweep --csv > sweep.csv

A table of several runs ends with the best evaluation of each, by --keep-best, else by its task's
first metric, and with the settings that differ between the runs.
)";

struct StatusOptions {
    bool all = false, json = false, csv = false;
};

/// A run beside others.
struct RunRow {
    RunStatus status;
    BestEvaluation best{};  ///< no metric: there is no evaluation
    std::map<std::string, std::string> settings{};
};

// As --keep-best names it: "accuracy", "kl:min".
std::string judged_by(const RunFigures& run) {
    const auto& figures = run.evaluations.front().figures;
    if (const Json* const given = run.record.config.find("keep-best")) {
        const std::string name = given->value("value", Json("")).as_text();
        if (figures.contains("test_" + name.substr(0, name.find(':')))) return name;
    }
    for (const char* name : {"iou", "accuracy", "r2", "perplexity", "loss"})
        if (figures.contains(fmt::format("test_{}", name))) return name;
    return "";
}

BestEvaluation best_of(const RunFigures& run) {
    BestEvaluation best;
    if (run.evaluations.empty()) return best;
    const std::string judged = judged_by(run);
    best.metric = judged.substr(0, judged.find(':'));
    best.value = std::nan("");
    for (const EvaluationMetrics& one : run.evaluations) {
        const auto found = one.figures.find("test_" + best.metric);
        if (found == one.figures.end() || !std::isfinite(found->second)) continue;
        if (std::isnan(best.value) || is_better(judged, found->second, best.value)) {
            best.value = found->second;
            best.step = one.step;
        }
    }
    return best;
}

std::vector<RunRow> all_runs(const fs::path& folder) {
    std::vector<RunRow> found;
    for (const fs::path& run : find_runs(folder)) try {
            RunRow row{.status = status_of_run(run, StatusDepth::history)};
            if (fs::exists(RunPaths{run}.record())) {
                const RunFigures figures = read_run_figures(run);
                row.best = best_of(figures);
                for (const auto& [name, entry] : figures.record.config.items())
                    row.settings[name] = entry.value("value", Json("")).as_text();
                // Two runs may call the same data by two paths.
                for (const char* name : {"data", "test-data"})
                    if (std::string& path = row.settings[name]; !path.empty())
                        path = (fs::path(figures.record.created_in) / path).lexically_normal();
            }
            found.push_back(std::move(row));
        } catch (const Error& error) {
            once(Level::warn, "'{}' is skipped: {}", run.string(), error.what());
        }
    return found;
}

// Settings that have one value in all runs, and those of a start, say nothing.
std::vector<std::string> differing_settings(const std::vector<RunRow>& runs) {
    std::map<std::string, std::set<std::string>> values;
    for (const RunRow& run : runs)
        for (const auto& [name, value] : run.settings) values[name].insert(value);
    std::vector<std::string> names;
    for (const auto& [name, all] : values)
        if (all.size() > 1 && !is_of_start(name)) names.push_back(name);
    return names;
}

// What a table and CSV have after the status: the best evaluation, and what differs.
std::vector<RunColumn> columns_of(const std::vector<RunRow>& runs) {
    std::vector<RunColumn> columns{{"metric", {}}, {"best", {}}, {"best step", {}}};
    for (const std::string& name : differing_settings(runs)) columns.push_back({name, {}});
    for (const RunRow& run : runs) {
        const BestEvaluation& best = run.best;
        const bool has_best = !best.metric.empty();
        columns[0].cells.push_back(best.metric);
        columns[1].cells.push_back(has_best ? fmt::format("{:.6g}", best.value) : "");
        columns[2].cells.push_back(has_best ? std::to_string(best.step) : "");
        for (std::size_t c = 3; c < columns.size(); ++c) {
            const auto found = run.settings.find(columns[c].name);
            columns[c].cells.push_back(found == run.settings.end() ? "" : found->second);
        }
    }
    return columns;
}

Json json_of(const RunRow& run) {
    Json json = status_json(run.status);
    json["best"] = Json();
    if (!run.best.metric.empty())
        json["best"] = {
            {"metric", run.best.metric}, {"value", run.best.value}, {"step", run.best.step}};
    json["settings"] = run.settings;
    return json;
}

std::string csv_of(const std::vector<RunRow>& runs) {
    const std::vector<RunColumn> columns = columns_of(runs);
    std::string text = "run,phase,step,steps_total,goodput";
    for (const RunColumn& column : columns) text += ',' + csv_cell(column.name);
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const RunStatus& status = runs[i].status;
        text += fmt::format("\n{},{},{},{},{:.4f}",
                            csv_cell(status.root.string()),
                            run_condition_name(status.condition),
                            status.step,
                            status.steps_total,
                            status.times.goodput());
        for (const RunColumn& column : columns) text += ',' + csv_cell(column.cells[i]);
    }
    return text + '\n';
}

std::string text_of(const std::vector<RunRow>& runs) {
    std::vector<RunStatus> statuses;
    for (const RunRow& run : runs) statuses.push_back(run.status);
    return status_table(statuses, columns_of(runs));
}

Json json_of(const std::vector<RunRow>& runs) {
    Json list = Json::array();
    for (const RunRow& run : runs) list.push_back(json_of(run));
    return list;
}

int show_all(const fs::path& folder, const StatusOptions& options) {
    const std::vector<RunRow> runs = all_runs(folder);
    print_once(options.csv    ? csv_of(runs)
               : options.json ? json_of(runs).dump(2) + "\n"
               : runs.empty() ? fmt::format("no runs in '{}'\n", folder.string())
                              : text_of(runs));
    return 0;
}

int show(const StatusOptions& options, const Invocation& call) {
    const auto& given = call.positionals;
    if (options.all)
        return show_all(given.empty() ? fs::path("runs") : fs::path(given[0]), options);
    check_fits(!options.csv, "--csv is for several runs", "", "give --all, or --json");
    check(!given.empty(),
          "E105",
          "an argument is missing",
          "",
          "give a run directory, or --all for the runs below 'runs'");
    const RunStatus status = status_of_run(given[0], StatusDepth::history);
    print_once(options.json ? status_json(status).dump(2) + "\n" : status_text(status));
    return 0;
}

constexpr const char* diagnose_help =
    R"(Every rank records its collectives in RUN/logs/iN/flight. This command compares the records of all
ranks and names the rank that keeps the others waiting, and its last action. It works while a job
runs, after it ended, and after a rank was killed. Exit code 76 if something is wrong.

Examples:
  lockstep diagnose runs/a
  lockstep diagnose runs/a --incarnation 2 --json
)";

struct DiagnoseOptions {
    std::int64_t incarnation = 0;  // 0: the newest
    bool json = false;
};

std::string_view life_text(const RankTrace& trace) {
    if (trace.end == FlightEnd::finished) return "finished";
    if (trace.end == FlightEnd::failed) return "failed";
    constexpr std::string_view names[] = {
        "running", "stopped", "gone", "elsewhere", "silent", "cut off", "unanswering"};
    return names[static_cast<std::size_t>(trace.life)];
}

bool is_over(const RankTrace& trace) {
    return trace.end != FlightEnd::none || trace.life == Life::gone;
}

// Returns the time before now, or before the rank's last heartbeat if it has ended.
double age_s(const RankTrace& trace, double time_s, double now_s) {
    return std::max((is_over(trace) ? trace.heartbeat_s : now_s) - time_s, 0.0);
}

std::string channel_text(const RankTrace& trace, std::uint32_t channel) {
    return channel < trace.channels.size() ? trace.channels[channel] : "";
}

std::string number_text(const RankTrace& trace, std::uint32_t channel, std::uint64_t seq) {
    return seq == 0 ? "-" : fmt::format("{} #{}", channel_text(trace, channel), seq);
}

constexpr auto rank_row = "{:>4}  {:<12}  {:>8}  {:<9}  {:<10}  {:>15}  {:<40}  {:>7}\n";

std::string row_text(const RankTrace& trace, double now_s) {
    if (!trace.damage.empty())
        return fmt::format("{:>4}  its record cannot be read: {}\n", trace.rank, trace.damage);
    const RankPosition at = position_of(trace);
    const std::string in =
        at.in == nullptr
            ? "-"
            : fmt::format(
                  "{} {}", number_text(trace, at.in->channel, at.in->seq), text_of(at.in->call));
    const double since_s = at.in == nullptr ? trace.phase_since_s : at.in->enqueued_s;
    return fmt::format(rank_row,
                       trace.rank,
                       trace.host,
                       trace.pid,
                       life_text(trace),
                       phase_name(trace.phase),
                       number_text(trace, at.channel, at.finished),
                       in,
                       duration_text(age_s(trace, since_s, now_s)));
}

// Returns the meaning of a diagnosis for which no rule of diagnose() holds.
std::string calm_text(const Diagnosis& found) {
    const auto all = found.traces.size();
    const auto finished = std::ranges::count(found.traces, FlightEnd::finished, &RankTrace::end);
    if (static_cast<std::size_t>(finished) == all)
        return fmt::format("is over: {} finished", all == 1 ? "its rank" : "all its ranks");
    const auto unheard = unheard_ranks(found.traces, found.now_s);
    if (unheard.empty())
        return found.is_over ? "is over, and nothing was wrong" : "nothing is wrong";
    double heard_s = 0;
    for (const RankTrace& trace : found.traces)
        if (std::ranges::find(unheard, trace.rank) != unheard.end())
            heard_s = std::max(heard_s, trace.heartbeat_s);
    if (heard_s > found.now_s)
        return fmt::format(
            "nothing is known to be wrong, but this host's clock is {} behind that of {} on "
            "another host, so its signs of life cannot be judged",
            duration_text(heard_s - found.now_s),
            ranks_text(unheard));
    return fmt::format(
        "nothing is known to be wrong, but {} on another host has not answered for {}; after {} it "
        "counts as dead",
        ranks_text(unheard),
        duration_text(found.now_s - heard_s),
        duration_text(found.is_over ? silence_after_end_s : silence_s));
}

std::string text_of(const Diagnosis& found) {
    std::string table =
        fmt::format(rank_row, "rank", "host", "pid", "state", "phase", "finished", "in", "since");
    for (const RankTrace& trace : found.traces) table += row_text(trace, found.now_s);
    const Verdict& verdict = found.verdict;
    if (verdict.trouble == Trouble::none) {
        table += fmt::format("incarnation {}: {}\n", found.incarnation, calm_text(found));
    } else {
        table += fmt::format(
            "incarnation {}: {}: {}\n", found.incarnation, name_of(verdict.trouble), verdict.what);
        if (!verdict.why.empty()) table += fmt::format("  why: {}\n", verdict.why);
        if (!verdict.fix.empty()) table += fmt::format("  fix: {}\n", verdict.fix);
    }
    return table;
}

Json json_of(const RankTrace& trace, double now_s) {
    if (!trace.damage.empty()) return {{"rank", trace.rank}, {"damage", trace.damage}};
    const RankPosition at = position_of(trace);
    Json row = {{"rank", trace.rank},
                {"host", trace.host},
                {"pid", trace.pid},
                {"state", life_text(trace)},
                {"signal", trace.signal},
                {"phase", phase_name(trace.phase)},
                {"phase_s", age_s(trace, trace.phase_since_s, now_s)},
                {"heartbeat_s", now_s - trace.heartbeat_s},
                {"channel", channel_text(trace, at.channel)},
                {"finished", at.finished}};
    if (trace.end == FlightEnd::failed) row["exit"] = trace.exit_code;
    if (at.in != nullptr)
        row["in"] = {{"seq", at.in->seq},
                     {"call", text_of(at.in->call)},
                     {"bytes", at.in->call.bytes},
                     {"bucket", at.in->call.bucket},
                     {"waits", at.in->started_s > 0},
                     {"since_s", age_s(trace, at.in->enqueued_s, now_s)}};
    return row;
}

Json json_of(const fs::path& run, const Diagnosis& found) {
    Json ranks = Json::array();
    for (const RankTrace& trace : found.traces) ranks.push_back(json_of(trace, found.now_s));
    return {{"run", run.string()},
            {"incarnation", found.incarnation},
            {"verdict", json_of(found.verdict)},
            {"over", found.is_over},
            {"unheard", unheard_ranks(found.traces, found.now_s)},
            {"ranks", ranks}};
}

int run_diagnose(const DiagnoseOptions& options, const Invocation& call) {
    const fs::path run = call.positionals[0];
    const Diagnosis found = diagnosis_of(run, options.incarnation);
    print_once(options.json ? json_of(run, found).dump(2) + "\n" : text_of(found));
    const bool is_fine =
        found.verdict.trouble == Trouble::none || found.verdict.trouble == Trouble::ended;
    return is_fine ? 0 : static_cast<int>(ExitCode::peer_lost);
}

}  // namespace

Command status_command() {
    auto options = std::make_shared<StatusOptions>();
    return {
        .name = "status",
        .summary = "show the state of runs, and where their time went",
        .usage = "lockstep status RUN|--all [DIR] [--json|--csv]",
        .text = status_help,
        .table = {{"Options",
                   {flag_option(
                        "all", options->all, "show every run below DIR; without DIR: below 'runs'"),
                    flag_option("csv", options->csv, "print the table of --all as CSV")}},
                  json_group(options->json)},
        .optional_positionals = 1,
        .run = [options](const Invocation& call) { return show(*options, call); }};
}

Command diagnose_command() {
    auto options = std::make_shared<DiagnoseOptions>();
    return {.name = "diagnose",
            .summary = "show which rank keeps a run waiting, or was lost",
            .usage = "lockstep diagnose RUN [--incarnation N] [--json]",
            .text = diagnose_help,
            .table = {start_group(options->incarnation), json_group(options->json)},
            .positionals = 1,
            .run = [options](const Invocation& call) { return run_diagnose(*options, call); }};
}

}  // namespace lockstep
