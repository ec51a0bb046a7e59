// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/trace.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* report_help =
    R"(Shows one page about a run, from its directory alone, during training or afterwards: how it ended and
why, what to try, loss and test curves, the time of each phase on each rank, slow ranks, starts,
goodput, and the nodes. Every finding has a number and a command to type.

text, json and markdown go to the terminal. html is one file with drawings, RUN/report.html unless
--out names another; it needs no network and runs no script.

Examples:
  lockstep report runs/a
  lockstep report runs/a --format html                  # then open runs/a/report.html
  lockstep report runs/a --format markdown --out a.md
  lockstep report runs/a --format json --incarnation 2
)";

std::string json_text(const Report& report) {
    return report_json(report).dump(2) + "\n";
}

struct ReportOptions {
    std::string (*form)(const Report&) = report_text;
    fs::path out;
    std::int64_t incarnation = 0;  // 0: the newest
};

Report report_of(const fs::path& run, std::int64_t asked, const std::string& program) {
    ReportClues clues{.status = status_of_run(run, StatusDepth::history)};
    check_start(asked, clues.status.incarnation);
    clues.start = asked > 0 ? asked : clues.status.incarnation;
    const bool has_logs = fs::is_directory(status_of(RunPaths{run}.logs(clues.start)));
    if (has_logs) clues.cause = root_cause(run, clues.start);
    clues.next = next_command(clues.status, clues.start, AlreadyTold::cause, clues.cause);
    clues.resume = resumption(clues.status, clues.start, program);
    clues.train_line = [=](const ChangedSettings& changed) {
        return resume_command(run, program, changed);
    };
    return make_report(read_run_figures(run, asked), std::move(clues));
}

int show(const ReportOptions& options, const Invocation& call) {
    const fs::path run = call.positionals[0];
    if (!options.out.empty()) check_output_place(options.out);
    const Report report = report_of(run, options.incarnation, call.process.program.name);
    const std::string text = options.form(report);
    const bool is_page = options.form == report_html;
    if (options.out.empty() && !is_page) {
        print_once(text);
        return 0;
    }
    const fs::path path = options.out.empty() ? run / "report.html" : options.out;
    (options.out.empty() ? write_file_atomically : write_named_file)(path, text);
    print_once(fmt::format("{} ({})\n", printable(path.string()), bytes_text(text.size())));
    return 0;
}

constexpr const char* metrics_help =
    R"(Prints the metrics of a run over all its starts, each step once: loss, rates, phases and evaluations.
csv has a row for each report and each evaluation, and a column for each metric. jsonl has the same as
lines of JSON. prometheus has the newest metrics for node_exporter's textfile collector.

It reads the run directory alone, during the run and afterwards. --out replaces the file atomically,
readable by its owner alone; a file made by the shell's > follows your umask.

Examples:
  lockstep metrics runs/a --out a.csv
  lockstep metrics runs/a --format jsonl | jq .loss
  lockstep metrics runs/a --format prometheus > /var/lib/node_exporter/a.tmp \
      && mv /var/lib/node_exporter/a.tmp /var/lib/node_exporter/a.prom
)";

struct MetricsOptions {
    std::string (*form)(const RunFigures&) = metrics_csv;
    fs::path out;
};

int export_metrics(const MetricsOptions& options, const fs::path& run) {
    if (!options.out.empty()) check_output_place(options.out);
    const std::string text = options.form(read_run_figures(run));
    if (options.out.empty())
        print_once(text);
    else
        write_named_file(options.out, text);
    return 0;
}

constexpr const char* merge_help =
    R"(Merges the traces of all ranks, which 'train --trace' wrote, into one JSON file for
https://ui.perfetto.dev and chrome://tracing. Times are those of rank 0's clock; a run measures the
offsets of the nodes' clocks when it starts. The file has a process for each rank, with a track for
its steps and their phases, and one for each bucket of gradients. Arrows lead from each sum to the same
sum on the next rank.

It reads the run directory alone, one rank at a time. Without --incarnation it merges the newest start
that has traces.

Examples:
  lockstep train --data D/train --run runs/a --np 4 --trace steps=50-60
  lockstep trace merge runs/a
  lockstep trace merge runs/a --out a.json
)";

struct MergeOptions {
    fs::path out;
    std::int64_t incarnation = 0;
};

std::string text_of(const MergedTraces& merged, const std::string& run) {
    std::string text = fmt::format("{}, start {}: {} of {} rank(s), {} slices",
                                   printable(run),
                                   merged.incarnation,
                                   trace_steps_text(merged.steps),
                                   merged.ranks.size(),
                                   grouped(merged.slices));
    if (merged.error_s > 0)
        text += fmt::format(" | clocks corrected by up to {:.3f} s, within {:.3f} ms",
                            merged.correction_s,
                            merged.error_s * 1e3);
    text += "\n";
    if (!merged.missing.empty())
        text += fmt::format("no trace of {}\n", ranks_text(merged.missing));
    if (merged.dropped > 0)
        text += fmt::format(
            "{} slices were not kept: a rank keeps {}, and --flight-entries collectives of a "
            "step\n",
            grouped(merged.dropped),
            grouped(StepTrace::most_slices));
    return text + fmt::format("written: {}\n", printable(merged.file.string()));
}

int merge(const MergeOptions& options, const std::string& run) {
    if (!options.out.empty()) check_output_place(options.out);
    const MergedTraces merged = merge_traces(run, options.incarnation, options.out);
    print_once(text_of(merged, run));
    print_once("next: open it at https://ui.perfetto.dev, which keeps it in your browser\n");
    return 0;
}

std::string absolute_text(const fs::path& path) {
    std::error_code unknown;
    const fs::path found = fs::absolute(path, unknown).lexically_normal();
    return (unknown ? path : found.has_filename() ? found : found.parent_path()).string();
}

std::string resuming_line(const fs::path& run,
                          const std::string& program,
                          const ChangedSettings& changed) {
    std::string words =
        fmt::format("{} train --resume {}", program, shell_word(absolute_text(run)));
    for (const auto& [name, value] : changed)
        words += fmt::format(" --{} {}", name, shell_word(value));
    return words;
}

// What was in files that every command reads is there still.
std::string line_of(const Json& config, const OptionTable& table, const std::string& program) {
    std::string variables, words;
    for (const Option* option : options_of(table)) {
        const Json* const given = config.find(option->name);
        if (!given) continue;
        const std::string value = given->at("value").get<std::string>();
        const std::string origin = given->at("origin").get<std::string>();
        if (origin.starts_with("LOCKSTEP_"))
            variables += fmt::format("{}={} ", origin, shell_word(value));
        else if (origin == "command line" && option->kind == OptionKind::flag)
            words += fmt::format(" --{}", option->name);
        else if (origin == "command line")
            words += fmt::format(" --{} {}", option->name, shell_word(value));
    }
    return words.empty() ? "" : variables + program + " train" + words;
}

// In the folder in which it was given first, for the sake of its relative paths and of files that
// are read there.
std::string in_its_folder(const std::string& line, const std::string& folder) {
    std::error_code unknown;
    if (line.empty() || fs::equivalent(folder, fs::current_path(unknown), unknown)) return line;
    if (fs::is_directory(folder, unknown))
        return fmt::format("(cd {} && {})", shell_word(folder), line);
    return fmt::format("{}   # its relative paths are of the folder in which it was given{}",
                       line,
                       folder.empty() ? "" : ": " + printable(folder));
}

}  // namespace

std::string resume_command(const fs::path& run,
                           const std::string& program,
                           const ChangedSettings& changed) {
    try {
        const RunRecord record = read_run_record(run);
        if (std::ranges::find(changed, "run", &ChangedSettings::value_type::first) == changed.end())
            return resuming_line(run, program, changed);
        Json config = record.config;
        for (const auto& [name, value] : changed)
            config[name] = {{"value", name == "run" ? absolute_text(value) : value},
                            {"origin", "command line"}};
        return in_its_folder(line_of(config, train_command().table, program), record.created_in);
    } catch (const Error&) {
        return "";
    }
}

std::string resumption(const RunStatus& status, std::int64_t start, const std::string& program) {
    const bool can_go_on = status.condition == RunCondition::checkpointed ||
                           status.condition == RunCondition::failed ||
                           status.condition == RunCondition::lost;
    return can_go_on && start == status.incarnation ? resume_command(status.root, program) : "";
}

Command report_command() {
    auto options = std::make_shared<ReportOptions>();
    return {
        .name = "report",
        .summary = "show on one page how a run went, and what to try",
        .usage = "lockstep report RUN [--format FORMAT] [--out FILE] [--incarnation N]",
        .text = report_help,
        .table =
            {{"Options",
              {choice_option("format",
                             options->form,
                             {{"text", report_text},
                              {"json", json_text},
                              {"markdown", report_markdown},
                              {"html", report_html}},
                             "format of the page"),
               path_option(
                   "out FILE",
                   options->out,
                   "file to write; unset: the terminal, or RUN/report.html with --format html")}},
             start_group(options->incarnation)},
        .positionals = 1,
        .run = [options](const Invocation& call) { return show(*options, call); }};
}

Command metrics_command() {
    auto options = std::make_shared<MetricsOptions>();
    return {.name = "metrics",
            .summary = "print a run's metrics as CSV, JSON lines or for Prometheus",
            .usage = "lockstep metrics RUN [--format csv|jsonl|prometheus] [--out FILE]",
            .text = metrics_help,
            .table = {{"Options",
                       {choice_option("format",
                                      options->form,
                                      {{"csv", metrics_csv},
                                       {"jsonl", metrics_jsonl},
                                       {"prometheus", metrics_prometheus}},
                                      "format of the output"),
                        path_option("out FILE", options->out, "file to write; unset: stdout")}}},
            .positionals = 1,
            .run = [options](const Invocation& call) {
                return export_metrics(*options, call.positionals[0]);
            }};
}

Command trace_merge_command() {
    auto options = std::make_shared<MergeOptions>();
    return {
        .name = "trace merge",
        .summary = "merge the traces of all ranks into one file for Perfetto",
        .usage = "lockstep trace merge RUN [--out FILE] [--incarnation N]",
        .text = merge_help,
        .table = {{"Options",
                   {path_option(
                       "out FILE", options->out, "file to write; unset: RUN/trace-iN.json")}},
                  start_group(options->incarnation)},
        .positionals = 1,
        .run = [options](const Invocation& call) { return merge(*options, call.positionals[0]); }};
}

}  // namespace lockstep
