// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/root_cause.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <memory>

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
)";

struct StatusOptions {
    bool all = false;
    bool json = false;
};

std::vector<RunStatus> all_runs(const fs::path& folder) {
    std::vector<RunStatus> found;
    for (const fs::path& run : find_runs(folder)) try {
            found.push_back(status_of_run(run, StatusDepth::history));
        } catch (const Error& error) {
            once(Level::warn, "'{}' is skipped: {}", run.string(), error.what());
        }
    return found;
}

int show_all(const fs::path& folder, const StatusOptions& options) {
    const auto runs = all_runs(folder);
    if (options.json) {
        Json list = Json::array();
        for (const RunStatus& run : runs) list.push_back(status_json(run));
        print_once(list.dump(2) + "\n");
    } else if (runs.empty()) {
        print_once(fmt::format("no runs in '{}'\n", folder.string()));
    } else {
        print_once(status_table(runs));
    }
    return 0;
}

int show(const StatusOptions& options, const Invocation& call) {
    const auto& given = call.positionals;
    if (options.all)
        return show_all(given.empty() ? fs::path("runs") : fs::path(given[0]), options);
    check(!given.empty(), [] {
        return Error("E105",
                     "an argument is missing",
                     "",
                     "give a run directory, or --all for the runs below 'runs'");
    });
    const RunStatus status = status_of_run(given[0], StatusDepth::history);
    print_once(options.json ? status_json(status).dump(2) + "\n" : status_text(status));
    return 0;
}

}  // namespace

Command status_command() {
    auto options = std::make_shared<StatusOptions>();
    return {.name = "status",
            .summary = "show the state of runs, and where their time went",
            .usage = "lockstep status RUN|--all [DIR] [--json]",
            .text = status_help,
            .table = {{"Options",
                       {flag_option("all",
                                    options->all,
                                    "show every run below DIR; without DIR: below 'runs'")}},
                      json_group(options->json)},
            .optional_positionals = 1,
            .run = [options](const Invocation& call) { return show(*options, call); }};
}

}  // namespace lockstep
