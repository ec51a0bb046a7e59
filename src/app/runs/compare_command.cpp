// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "runs/compare_report.hpp"

#include <memory>

namespace lockstep {
namespace {

constexpr const char* compare_help =
    R"(Compares two runs: speed of each phase, metrics on the test data, goodput, and settings that differ,
with their origin and whether they decide bits. It also compares the parameters, bit for bit, after
the newest step of which both runs have a checkpoint.

A difference in speed counts if it is more than twice the noise of the steps (+- in the table). The
first step of a start is left out, as it warms caches up. Metrics are compared after equally many
samples and after equally many updates, which differ between batch sizes. A gap after equally many
updates has another cause than the number of updates.

Examples:
  lockstep compare runs/a runs/b
  lockstep compare runs/np1 runs/np4 --json
)";

}  // namespace

Command compare_command() {
    auto json = std::make_shared<bool>(false);
    return {.name = "compare",
            .summary = "compare two runs: speed, accuracy, settings, bits",
            .usage = "lockstep compare RUN RUN [--json]",
            .text = compare_help,
            .table = {{"Options", {json_option(*json)}}},
            .positionals = 2,
            .run = [json](const Invocation& call) {
                const RunComparison comparison =
                    compare_runs(call.positionals[0], call.positionals[1]);
                print_once(*json ? comparison_json(comparison).dump(2) + "\n"
                                 : comparison_text(comparison));
                return 0;
            }};
}

}  // namespace lockstep
