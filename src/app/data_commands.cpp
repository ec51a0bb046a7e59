// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/inspect.hpp"
#include "lockstep/data/verify.hpp"

#include "command.hpp"
#include "staged_progress.hpp"

#include <algorithm>
#include <memory>
#include <string>

#include <fmt/format.h>

namespace lockstep {
namespace {

int verify(const std::string& folder) {
    StagedProgress progress;
    const auto findings = verify_dataset(folder, [&](const VerifyProgress& at) {
        progress.update("verify", at.done, at.total, ProgressUnit::bytes);
    });
    progress.finish();
    if (findings.empty()) {
        print_once(fmt::format("'{}' is whole\n", folder));
        return 0;
    }
    constexpr std::size_t shown = 8;
    for (std::size_t i = 0; i < std::min(shown, findings.size()); ++i)
        print_once(fmt::format("{} {}\n", findings[i].code, printable(findings[i].text)));
    throw Error(findings.front().code,
                fmt::format("'{}' is damaged: {} finding(s)", folder, findings.size()),
                findings.size() > shown ? "the first are listed above" : "they are listed above",
                "restore the named files from their source, or pack again");
}

}  // namespace

Command data_inspect_command() {
    auto fields = std::make_shared<std::string>();
    return {
        .name = "data inspect",
        .summary = "show what a data set holds",
        .usage = "lockstep data inspect DIR",
        .text =
            "Fields, shapes, sizes, compression, statistics and classes. With --field, DIR is an\n"
            "HDF5 file, a folder or a pattern of such files that others wrote.\n",
        .table = {{"What to look at",
                   {list_option("field",
                                "NAME=PATH",
                                *fields,
                                "field in HDF5 files that others wrote, e.g. "
                                "images=/x/data:CHW")}}},
        .positionals = 1,
        .run = [fields](const Invocation& call) {
            print_once(describe_dataset(
                DatasetIndex::open(call.positionals[0], parse_field_mappings(*fields))));
            return 0;
        }};
}

Command data_verify_command() {
    return {.name = "data verify",
            .summary = "check every byte of a data set",
            .usage = "lockstep data verify DIR",
            .text =
                "Reads all shards, compares all hashes, decodes all blocks, checks labels.\n"
                "Names shard, field, block and offset of any damage.\n",
            .positionals = 1,
            .run = [](const Invocation& call) { return verify(call.positionals[0]); }};
}

}  // namespace lockstep
