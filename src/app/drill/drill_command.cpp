// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/launch/mpirun.hpp"

#include "command.hpp"
#include "drill/drill.hpp"
#include "option_groups.hpp"
#include "train/short_training.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr const char* drill_help =
    R"(Causes known faults in a small training, and checks that each ends as docs/drill.md says: with the
right exit code, with rank, node and cause named, and with nothing left behind. Then the same
command must resume, and give the same parameters as a training without a fault. The result is one
page.

It touches only processes and folders that it made, and removes them, also after Ctrl-C. A fault
that is impossible here is skipped, and the page says why.

Exit code 0: every fault that was tried ended as it should.

Faults:
)";

constexpr const char* drill_examples = R"(
Examples:
  lockstep drill
  lockstep drill --fault killed-rank,preempt --np 4 --out drill.md
  lockstep drill --fault node-loss --hosts n1:2,n2:2 --scratch /shared/me
)";

struct DrillOptions {
    std::vector<std::string> faults = {"all"};
    bool json = false;
    int np = 2;
    std::int64_t steps = 0;
    std::string hosts;
    fs::path scratch, out;
};

/// The page for programs.
Json page_json(const DrillPage& page) {
    Json json = {{"drill", "lockstep"},
                 {"lockstep", version_text()},
                 {"host", page.host},
                 {"when", page.when},
                 {"ranks", page.ranks},
                 {"steps", page.steps},
                 {"parameters", page.parameters},
                 {"passed", page.count(FaultEnd::passed)},
                 {"failed", page.count(FaultEnd::failed)},
                 {"skipped", page.count(FaultEnd::skipped)}};
    json["faults"] = Json::array();
    for (const FaultReport& fault : page.faults) json["faults"].push_back(json_of_record(fault));
    return json;
}

DrillPage drill(const DrillOptions& options) {
    std::vector<const Fault*> faults;
    for (const Fault& fault : all_faults())
        if (std::ranges::count(options.faults, "all") > 0 ||
            std::ranges::count(options.faults, fault.name) > 0)
            faults.push_back(&fault);
    const RemovedFolder scratch = make_scratch_folder(
        options.scratch.empty() ? fs::temp_directory_path() : fs::absolute(options.scratch),
        "drill",
        "give another place by --scratch");
    const std::size_t parts = faults.size() + 1;
    std::size_t done = 0;
    Progress progress("drill", parts, ProgressUnit::count, progress_sink(options.json));
    const auto look = [&](const std::string& what) {
        give_up_if_asked("the drill");
        progress.update(done, fmt::format("drill {} of {}: {}", done + 1, parts, what));
    };
    DrillBed bed{{.scratch = scratch.path(),
                  .ranks = options.np,
                  .steps = options.steps,
                  .hosts = options.hosts},
                 look};
    bed.prepare();
    DrillPage page{.host = host_name(),
                   .when = utc_text(unix_time_s()),
                   .ranks = options.np,
                   .steps = bed.settings.steps,
                   .parameters = bed.settings.parameters};
    for (const Fault* const fault : faults) {
        ++done;
        look(fault->name);
        page.faults.push_back(rehearse(*fault, bed));
    }
    return page;
}

int run(const DrillOptions& options, const Invocation& call) {
    check_no_launcher(call, "drill");
    if (!options.out.empty()) check_output_place(options.out);
    check_rank_program(rank_program(call.process.program));
    const SignalGuard signals;
    const DrillPage page = drill(options);
    const std::string text = options.json ? page_json(page).dump() + "\n" : page_text(page);
    print_once(text);
    if (!options.out.empty()) write_named_file(options.out, text);
    check_drill(page);
    return 0;
}

std::string fault_end_name(FaultEnd end) {
    constexpr const char* names[] = {"passed", "failed", "skipped"};
    return names[static_cast<int>(end)];
}

std::string section_of_fault(const FaultReport& fault) {
    auto text = fmt::format("\n## {}: {}\n", fault.name, fault_end_name(fault.end()));
    if (!fault.why_skipped.empty()) return text + printable(fault.why_skipped) + "\n";
    if (!fault.done.empty()) text += printable(fault.done) + "\n\n";
    for (const Expectation& one : fault.expectations) {
        const std::string found = printable(one.found);
        text += one.is_met
                    ? fmt::format("- {}: {}\n", one.what, found)
                    : fmt::format("- **{}: {}**, expected: {}\n", one.what, found, one.expected);
    }
    return text;
}

}  // namespace

Command drill_command() {
    auto options = std::make_shared<DrillOptions>();
    std::vector<std::string> names{"all"};
    std::string text = drill_help;
    for (const Fault& fault : all_faults()) {
        names.emplace_back(fault.name);
        text += fmt::format("  {:<16} {}\n", fault.name, fault.help);
    }
    return {
        .name = "drill",
        .summary = "cause faults, and check that they end as they should",
        .usage = "lockstep drill [--fault NAME,..] [--np N] [--out FILE]",
        .text = text + drill_examples,
        .table =
            {{"Faults", {some_option("fault", options->faults, names, "faults to try")}},
             {"Trainings",
              {whole_option("np", options->np, {2, 8}, "ranks of each training, on this machine"),
               hosts_option(options->hosts),
               whole_option("steps",
                            options->steps,
                            {0, 10'000'000},
                            "steps of each training; the fault comes after a tenth; 0: as many as "
                            "take some seconds"),
               path_option("scratch DIR",
                           options->scratch,
                           "folder of the trainings, removed at the end; unset: $TMPDIR or /tmp")}},
             {"Output",
              {path_option("out FILE", options->out, "also write the page to this file")}},
             json_group(options->json)},
        .is_about_lockstep = true,
        .run = [options](const Invocation& call) { return run(*options, call); }};
}

Expectation expect_text(std::string what, std::string expected, std::string found) {
    const bool is_met = expected == found;
    return {std::move(what), std::move(expected), std::move(found), is_met};
}

FaultEnd FaultReport::end() const {
    if (!why_skipped.empty()) return FaultEnd::skipped;
    const bool is_right =
        !expectations.empty() && std::ranges::all_of(expectations, &Expectation::is_met);
    return is_right ? FaultEnd::passed : FaultEnd::failed;
}

std::size_t DrillPage::count(FaultEnd end) const {
    return static_cast<std::size_t>(std::ranges::count(faults, end, &FaultReport::end));
}

std::string page_text(const DrillPage& page) {
    const std::size_t skipped = page.count(FaultEnd::skipped);
    auto text = fmt::format(
        "# Lockstep drill: {} of {} faults ended as they should{}\n\n"
        "{}, {}, lockstep {}. {} ranks train an mlp on made-up data for {} steps;\n"
        "undisturbed, its parameters are {}.\n\n| fault | verdict | took |\n|---|---|---|\n",
        page.count(FaultEnd::passed),
        page.faults.size() - skipped,
        skipped > 0 ? fmt::format(", {} skipped", skipped) : "",
        printable(page.host),
        page.when,
        version_text(),
        page.ranks,
        grouped(page.steps),
        page.parameters);
    for (const FaultReport& fault : page.faults)
        text += fmt::format("| {} | {} | {} |\n",
                            fault.name,
                            fault_end_name(fault.end()),
                            duration_text(fault.seconds));
    for (const FaultReport& fault : page.faults) text += section_of_fault(fault);
    return text;
}

static void describe(Record& record, Expectation& one) {
    LOCKSTEP_EACH(record.field, one.what, one.expected, one.found);
    record.field("met", one.is_met);
}

void describe(Record& record, FaultReport& report) {
    record.field("fault", report.name);
    record.mark("verdict", fault_end_name(report.end()));
    LOCKSTEP_EACH(record.field, report.done, report.seconds);
    record.sparse("why_skipped", report.why_skipped);
    record.field("expectations", report.expectations);
}

void check_drill(const DrillPage& page) {
    std::vector<std::string> failed;
    for (const FaultReport& fault : page.faults)
        if (fault.end() == FaultEnd::failed) failed.push_back(fault.name);
    check(failed.empty(), [&] {
        return Error("E740",
                     fmt::format("{} of {} faults did not end as they should: {}",
                                 failed.size(),
                                 page.faults.size() - page.count(FaultEnd::skipped),
                                 fmt::join(failed, ", ")),
                     "the page above shows what was expected and what was found",
                     fmt::format("try it alone: lockstep drill --fault {}", failed.front()));
    });
    check(page.count(FaultEnd::passed) > 0,
          "E741",
          "no fault was tried",
          "all were skipped; the page above says why",
          "choose other faults, or provide what these need");
}

}  // namespace lockstep
