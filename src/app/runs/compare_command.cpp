// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "runs/compare_report.hpp"

#include <memory>

namespace lockstep {
namespace {

constexpr const char* compare_help =
    R"(Puts two runs side by side: speed, phase by phase; figures of the test data; goodput; which settings
differ, where their values came from, and which of them decide bits; and whether the parameters are
the same, bit for bit, after the newest step whose checkpoints both have.

A difference in speed counts where it is more than twice what the steps' own scatter makes of it
(+- in the table; the first step of a start, which warms caches up, is left out). Figures are compared
after as many samples and after as many updates: with other batches these are not the same, and
what is left of a gap after as many updates is not for want of updates.

Examples:
  lockstep compare runs/a runs/b
  lockstep compare runs/np1 runs/np4 --json
)";

}  // namespace

Command compare_command() {
    auto json = std::make_shared<bool>(false);
    return {.name = "compare",
            .summary = "put two runs side by side: speed, accuracy, settings, bits",
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
