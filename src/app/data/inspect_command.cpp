// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/run/step_line.hpp"

#include "command.hpp"

#include <memory>
#include <string>

namespace lockstep {
namespace {

struct InspectArguments {
    InspectOptions options;
    JobShape job{.ranks = 0};
    std::string fields;
    bool follows_links = false;
};

int inspect(const std::filesystem::path& where, InspectArguments& arguments) {
    InspectOptions& options = arguments.options;
    options.links = links_of(arguments.follows_links);
    options.fields = parse_field_mappings(arguments.fields, options.links);
    options.columns = terminal_columns();
    if (arguments.job.ranks > 0) {
        options.job = arguments.job;
        options.job->node_memory_bytes = read_node_facts().usable_memory_bytes();
    }
    print_once(inspect_data(where, options));
    return 0;
}

}  // namespace

Command data_inspect_command() {
    auto arguments = std::make_shared<InspectArguments>();
    JobShape& job = arguments->job;
    return {
        .name = "data inspect",
        .summary = "show the contents of data, a model for them, and whether a job fits",
        .usage = "lockstep data inspect DIR|FILE... [options]",
        .text =
            "Shows the data sets of HDF5 files, or the fields of a packed data set, with type, "
            "size,\n"
            "storage and values. It says how often each class occurs, how well classes are mixed,\n"
            "and which command trains on the data, or what to do if none does. Of large data it\n"
            "reads rows from all over them, and says how many. FILE may be a folder or a pattern.\n"
            "Without --field the first file is listed, and up to 16 more are opened.\n"
            "With --ranks it compares the needs of such a job with this layout.\n\n"
            "Examples:\n"
            "  lockstep data inspect 'scans/*.h5'\n"
            "  lockstep data inspect scans/*.h5 --field images=/x/data:CHW --field labels=/y\n"
            "  lockstep data inspect data/fashion/train --ranks 8 --batch 512 --png some.png\n",
        .table =
            {{"Data",
              {field_option("field",
                            arguments->fields,
                            "field in HDF5 files that others wrote, such as "
                            "images=/x/data:CHW"),
               links_option(arguments->follows_links)}},
             {"Job",
              {whole_option("ranks", job.ranks, 0, 1 << 20, "ranks of the job; 0: no job"),
               whole_option("nodes", job.nodes, 1, 1 << 20, "nodes of the job"),
               whole_option("batch", job.batch, 1, 1LL << 40, "samples per step over all ranks"),
               whole_option("lanes", job.lanes, 1, 1 << 20, "lanes of the order"),
               whole_option("window-blocks",
                            job.window_blocks,
                            1,
                            1 << 20,
                            "blocks in a window of a lane")}},
             {"Output",
              {path_option("png",
                           "OUT.png",
                           arguments->options.sheet,
                           "write some images side by side into a new file"),
               flag_option(
                   "json", arguments->options.as_json, "print one JSON object, for programs")}}},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [arguments](const Invocation& call) {
            return inspect(data_of_words(call.positionals), *arguments);
        }};
}

}  // namespace lockstep
