// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/launch/mpirun.hpp"

#include "command.hpp"
#include "drill/drill_bed.hpp"
#include "drill/faults.hpp"
#include "option_groups.hpp"
#include "output_place.hpp"
#include "train/short_training.hpp"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* drill_help =
    R"(Causes known faults in a small training, and checks that each ends as docs/drill.md says: with the
right exit code, with rank, node and cause named, and with nothing left behind. Then the same
command must resume, and give the same parameters as a training without a fault. Without a choice
all faults are tried. The result is one page.

It touches only processes and folders that it made, and removes them, also after Ctrl-C. A fault
that is impossible here is skipped, and the page says why.

Exit code 0: every fault that was tried ended as it should.

Examples:
  lockstep drill
  lockstep drill --killed-rank --preempt --np 4 --out drill.md
  lockstep drill --node-loss --hosts n1:2,n2:2 --scratch /shared/me
)";

struct DrillOptions {
    std::vector<bool> chosen;  ///< of all_faults(), by number; false: not named
    bool all = false, json = false;
    int np = 2;
    std::int64_t steps = 0;
    std::string hosts;
    fs::path scratch, out;
};

Option fault_option(const Fault& fault, std::vector<bool>& chosen, std::size_t number) {
    return {.name = fault.name,
            .value = "",
            .default_value = "",
            .help = fault.help,
            .kind = OptionKind::flag,
            .assign =
                [&chosen, number, name = std::string(fault.name)](const GivenValue& given) {
                    bool is_on = false;
                    flag_option(name, is_on, "").assign(given);
                    chosen[number] = is_on;
                },
            .current = [&chosen, number] { return ConfigValue(bool(chosen[number])); }};
}

OptionSection faults_section(DrillOptions& options) {
    options.chosen.assign(all_faults().size(), false);
    OptionSection section{"Faults", {}};
    for (std::size_t i = 0; i < all_faults().size(); ++i)
        section.options.push_back(fault_option(all_faults()[i], options.chosen, i));
    section.options.push_back(flag_option("all", options.all, "all faults, as without a choice"));
    return section;
}

OptionTable table_of(DrillOptions& options) {
    return {
        faults_section(options),
        {"Trainings",
         {whole_option("np", options.np, 2, 8, "ranks of each training, on this machine"),
          filled(text_option("hosts",
                             "HOST:N[,HOST:N]",
                             options.hosts,
                             "for --node-loss: start N ranks on each host, over ssh")),
          whole_option("steps",
                       options.steps,
                       0,
                       10'000'000,
                       "steps of each training; the fault comes after a tenth; 0: as many as "
                       "take some seconds"),
          path_option("scratch",
                      "DIR",
                      options.scratch,
                      "folder of the trainings, removed at the end; unset: $TMPDIR or /tmp")}},
        {"Output", {path_option("out", "FILE", options.out, "also write the page to this file")}},
        json_group(options.json)};
}

std::vector<const Fault*> chosen_faults(const DrillOptions& options) {
    const bool takes_all =
        options.all || std::ranges::find(options.chosen, true) == options.chosen.end();
    std::vector<const Fault*> faults;
    for (std::size_t i = 0; i < all_faults().size(); ++i)
        if (takes_all || options.chosen[i]) faults.push_back(&all_faults()[i]);
    return faults;
}

FaultReport rehearse(const Fault& fault, DrillBed& bed) {
    const double begin_s = now_s();
    FaultReport report = fault.rehearse(bed);
    report.name = fault.name;
    report.seconds = now_s() - begin_s;
    return report;
}

DrillPage drill(const DrillOptions& options, const std::vector<const Fault*>& faults) {
    const ScratchFolder scratch(
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
    DrillBed bed({.scratch = scratch.path(),
                  .ranks = options.np,
                  .steps = options.steps,
                  .hosts = options.hosts},
                 look);
    bed.prepare();
    DrillPage page{.host = host_name(),
                   .when = utc_text(unix_time_s()),
                   .ranks = options.np,
                   .steps = bed.settings().steps,
                   .parameters = bed.settings().parameters};
    for (const Fault* const fault : faults) {
        ++done;
        look(fault->name);
        page.faults.push_back(rehearse(*fault, bed));
    }
    return page;
}

int run(const DrillOptions& options, const Invocation& call) {
    if (!options.out.empty()) check_output_place(options.out);
    check_rank_program(rank_program(call.process.program));
    const SignalGuard signals;
    const DrillPage page = drill(options, chosen_faults(options));
    const std::string text = options.json ? page_json(page).dump() + "\n" : page_text(page);
    print_once(text);
    if (!options.out.empty()) write_file_atomically(options.out, text);
    check_drill(page);
    return 0;
}

}  // namespace

Command drill_command() {
    auto options = std::make_shared<DrillOptions>();
    return {.name = "drill",
            .summary = "cause faults, and check that they end as they should",
            .usage = "lockstep drill [--killed-rank] [--preempt] ... [--np N] [--out FILE]",
            .text = drill_help,
            .table = table_of(*options),
            .is_about_lockstep = true,
            .run = [options](const Invocation& call) { return run(*options, call); }};
}

}  // namespace lockstep
