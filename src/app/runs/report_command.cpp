// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/report.hpp"
#include "lockstep/run/root_cause.hpp"
#include "lockstep/run/run_directory.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "output_place.hpp"
#include "runs/resume_command.hpp"

#include <memory>

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

enum class ReportFormat { text, json, markdown, html };

struct ReportOptions {
    ReportFormat format = ReportFormat::text;
    fs::path out;
    std::int64_t incarnation = 0;  // 0: the newest
};

void check_start(std::int64_t start, std::int64_t newest) {
    check(start <= newest, [&] {
        return Error("E102",
                     fmt::format("--incarnation is {}", start),
                     newest == 0   ? "no start of the run has logs"
                     : newest == 1 ? "the run has one start"
                                   : fmt::format("the run has starts 1 to {}", newest),
                     "0 or nothing: the newest");
    });
}

std::optional<ReportCause> cause_of(const std::optional<RootCause>& found) {
    if (!found) return {};
    return ReportCause{found->error, found->trouble, found->followers};
}

Report report_of(const fs::path& run, std::int64_t asked, const std::string& program) {
    ReportClues clues{.status = status_of_run(run, StatusDepth::history)};
    check_start(asked, clues.status.incarnation);
    clues.start = asked > 0 ? asked : clues.status.incarnation;
    std::error_code failed;
    const bool has_logs = fs::is_directory(RunPaths{run}.logs(clues.start), failed);
    const auto cause = has_logs ? root_cause(run, clues.start) : std::nullopt;
    clues.cause = cause_of(cause);
    clues.next = next_command(clues.status, clues.start, AlreadyTold::cause, cause);
    clues.resume = resumption(clues.status, clues.start, program);
    clues.train_line = [=](const ChangedSettings& changed) {
        return resume_command(run, program, changed);
    };
    return make_report(read_run_figures(run, asked), std::move(clues));
}

std::string rendered(const Report& report, ReportFormat format) {
    switch (format) {
        case ReportFormat::text:
            return report_text(report);
        case ReportFormat::json:
            return report_json(report).dump(2) + "\n";
        case ReportFormat::markdown:
            return report_markdown(report);
        case ReportFormat::html:
            return report_html(report);
    }
    return "";
}

int show(const ReportOptions& options, const Invocation& call) {
    const fs::path run = call.positionals[0];
    if (!options.out.empty()) check_output_place(options.out);
    const Report report = report_of(run, options.incarnation, call.process.program.name);
    const std::string text = rendered(report, options.format);
    const bool is_page = options.format == ReportFormat::html;
    if (options.out.empty() && !is_page) {
        print_once(text);
        return 0;
    }
    const fs::path path = options.out.empty() ? run / "report.html" : options.out;
    write_file_atomically(path, text);
    print_once(fmt::format("{} ({})\n", printable(path.string()), bytes_text(text.size())));
    return 0;
}

}  // namespace

Command report_command() {
    auto options = std::make_shared<ReportOptions>();
    return {.name = "report",
            .summary = "show on one page how a run went, and what to try",
            .usage = "lockstep report RUN [--format FORMAT] [--out FILE] [--incarnation N]",
            .text = report_help,
            .table =
                {{"Options",
                  {choice_option<ReportFormat>("format",
                                               options->format,
                                               {{"text", ReportFormat::text},
                                                {"json", ReportFormat::json},
                                                {"markdown", ReportFormat::markdown},
                                                {"html", ReportFormat::html}},
                                               "format of the page"),
                   path_option(
                       "out",
                       "FILE",
                       options->out,
                       "file to write; unset: the terminal, or RUN/report.html with --format html"),
                   incarnation_option(options->incarnation)}}},
            .positionals = 1,
            .run = [options](const Invocation& call) { return show(*options, call); }};
}

}  // namespace lockstep
