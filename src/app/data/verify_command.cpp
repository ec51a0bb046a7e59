// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/verify.hpp"

#include "command.hpp"
#include "data/staged_progress.hpp"
#include "data/team.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

namespace lockstep {
namespace {

void verify(const std::string& folder, int threads, const Communicator& ranks) {
    StagedProgress progress;
    const auto report = [&](const VerifyProgress& at) {
        progress.update("verify", at.done, at.total, ProgressUnit::bytes);
    };
    const auto findings = verify_dataset(folder, report, {threads, team_of(ranks)});
    progress.finish();
    if (findings.empty()) {
        if (ranks.is_root()) print_once(fmt::format("'{}' is whole\n", folder));
        return;
    }
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; ranks.is_root() && i < std::min(shown, findings.size()); ++i)
        print_once(fmt::format("{} {}\n", findings[i].code, printable(findings[i].text)));
    throw Error(findings.front().code,
                fmt::format("'{}' is damaged: {} finding(s)", folder, findings.size()),
                findings.size() > shown ? "the first are listed above" : "they are listed above",
                "restore the named files from their source, or pack again");
}

}  // namespace

Command data_verify_command() {
    auto threads = std::make_shared<int>(0);
    return {
        .name = "data verify",
        .summary = "check every byte of a data set",
        .usage = "lockstep data verify DIR [--threads N]",
        .text =
            "Reads every byte of all shards once: compares all hashes, decodes all blocks, checks\n"
            "labels. Names shard, field, block and offset of any damage. Under mpirun, ranks "
            "share\n"
            "the shards.\n",
        .table = {{"How",
                   {whole_option("threads",
                                 *threads,
                                 0,
                                 1024,
                                 "that read and check, in each rank; 0: one per core")}}},
        .positionals = 1,
        .run = [threads](const Invocation& call) {
            const Communicator& ranks = call.process.ranks;
            agree(ranks, [&] { verify(call.positionals[0], *threads, ranks); });
            return 0;
        }};
}

}  // namespace lockstep
