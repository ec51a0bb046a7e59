// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/data_words.hpp"
#include "lockstep/data/inspect.hpp"

#include "command.hpp"

#include <memory>
#include <optional>
#include <string>

namespace lockstep {
namespace {

struct InspectArguments {
    JobShape job{.ranks = 0};
    std::string fields;
    bool follows_links = false;
    bool as_json = false;
};

int inspect(const std::filesystem::path& where, InspectArguments& arguments) {
    const auto index = std::make_shared<const DatasetIndex>(DatasetIndex::open(
        where, parse_field_mappings(arguments.fields, links_of(arguments.follows_links))));
    std::optional<JobShape> job;
    if (arguments.job.ranks > 0) {
        job = arguments.job;
        job->node_memory_bytes = read_node_facts().usable_memory_bytes();
    }
    const Inspection inspection = inspect_dataset(index, job);
    if (arguments.as_json)
        print_once(inspection_json(*index, inspection));
    else
        print_once(describe_dataset(*index) + describe_inspection(inspection));
    return 0;
}

}  // namespace

Command data_inspect_command() {
    auto arguments = std::make_shared<InspectArguments>();
    JobShape& job = arguments->job;
    return {
        .name = "data inspect",
        .summary = "show what a data set holds, and whether a job fits it",
        .usage = "lockstep data inspect DIR|FILE... [options]",
        .text =
            "Fields, shapes, sizes, compression, statistics and classes; how the data lie, how "
            "well\n"
            "classes are mixed, and what to do about it. With --ranks: what such a job needs and\n"
            "what this layout gives it.\n\n"
            "Examples:\n"
            "  lockstep data inspect data/fashion/train --ranks 8 --batch 512\n"
            "  lockstep data inspect scans/*.h5 --field images=/x/data:CHW --field labels=/y\n",
        .table =
            {{"What to look at",
              {field_option("field",
                            arguments->fields,
                            "field in HDF5 files that others wrote, e.g. images=/x/data:CHW"),
               links_option(arguments->follows_links)}},
             {"Job",
              {whole_option("ranks", job.ranks, 0, 1 << 20, "of the job; 0: no job"),
               whole_option("nodes", job.nodes, 1, 1 << 20, "of the job"),
               whole_option("batch", job.batch, 1, 1LL << 40, "samples of a step, over all ranks"),
               whole_option("lanes", job.lanes, 1, 1 << 20, "of the order"),
               whole_option("window-blocks", job.window_blocks, 1, 1 << 20, "of a lane's window")}},
             {"Output", {flag_option("json", arguments->as_json, "a JSON object")}}},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            return inspect(data_of_words(call.positionals), *arguments);
        }};
}

}  // namespace lockstep
