// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/foreign.hpp"

#include "command.hpp"
#include "data/team.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string sound(const std::vector<FieldMapping>& fields) {
    return fields.empty() ? "is whole"
                          : "every block can be read; it has no hashes to compare with";
}

struct VerifyArguments {
    std::string fields;
    bool follows_links = false;
    int threads = 0;
};

void verify(const std::filesystem::path& where,
            const VerifyArguments& arguments,
            const Communicator& ranks) {
    Progress progress;
    const auto report = [&](const VerifyProgress& at) {
        progress.update("verify", at.done, at.total, ProgressUnit::bytes);
    };
    const std::vector<FieldMapping> fields =
        parse_field_mappings(arguments.fields, links_of(arguments.follows_links));
    const auto findings = verify_data(where, fields, report, {arguments.threads, team_of(ranks)});
    progress.finish();
    if (findings.empty()) {
        if (ranks.is_root()) print_once(fmt::format("'{}' {}\n", where.string(), sound(fields)));
        return;
    }
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; ranks.is_root() && i < std::min(shown, findings.size()); ++i)
        print_once(fmt::format("{} {}\n", findings[i].code, printable(findings[i].text)));
    throw Error(findings.front().code,
                fmt::format("'{}' is damaged: {} finding(s)", where.string(), findings.size()),
                findings.size() > shown ? "the first are listed above" : "they are listed above",
                "restore the named files from their source, or pack again");
}

}  // namespace

Command data_verify_command() {
    auto arguments = std::make_shared<VerifyArguments>();
    return {
        .name = "data verify",
        .summary = "check every byte of a data set",
        .usage = "lockstep data verify DIR|FILE... [--threads N]",
        .text =
            "Reads every byte of all shards once: compares all hashes, decodes all blocks, checks\n"
            "labels. Names shard, field, block and offset of any damage. Under mpirun, ranks "
            "share\n"
            "the shards. Of HDF5 files that others wrote, each block is read and expanded, and\n"
            "compared with the checksums that it has.\n\n"
            "Examples:\n"
            "  lockstep data verify data/fashion/train\n"
            "  lockstep data verify scans/*.h5 --field images=/x/data --field labels=/y\n",
        .table = {{"How",
                   joined(foreign_options(arguments->fields, arguments->follows_links),
                          {threads_option(arguments->threads)})}},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            const Communicator& ranks = call.process.ranks;
            agree(ranks, [&] { verify(data_of_words(call.positionals), *arguments, ranks); });
            return 0;
        }};
}

}  // namespace lockstep
