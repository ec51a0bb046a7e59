// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/ledger.hpp"

#include "command.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

int prove(const fs::path& run) {
    const LedgerReport report = check_ledger(run / "ledger");
    print_once(describe_ledger(report));
    check(report.is_exact(), [&] {
        return Error("E229",
                     fmt::format("'{}' did not see every sample exactly once", run.string()),
                     "what is missing, seen twice or damaged is listed above",
                     "see 'lockstep explain E229'");
    });
    print_once(report.dropped > 0 ? "every sample but those dropped exactly once per epoch\n"
                                  : "every sample exactly once per epoch\n");
    return 0;
}

}  // namespace

Command data_ledger_command() {
    return {.name = "data ledger",
            .summary = "prove that a run saw each sample once per epoch",
            .usage = "lockstep data ledger RUN",
            .text =
                "Reads what every rank of every start of the run recorded ('train --ledger') and\n"
                "counts, epoch by epoch, what the final model saw: missing, duplicate, superseded\n"
                "by a restart. Exit code 65 unless every sample was seen exactly once.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return prove(call.positionals[0]); }};
}

}  // namespace lockstep
