// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"
#include "lockstep/data/data_words.hpp"
#include "lockstep/data/first_look.hpp"
#include "lockstep/observe/step_line.hpp"

#include "command.hpp"

#include <memory>

namespace lockstep {

Command data_look_command() {
    auto options = std::make_shared<FirstLookOptions>();
    return {
        .name = "data look",
        .summary = "take a first look at HDF5 files of others or a data set",
        .usage = "lockstep data look DIR|FILE... [options]",
        .text =
            "A first look at HDF5 files that others wrote, or at a packed data set: a tree of its\n"
            "data sets with type, size, chunks, filters and range of values, how often each class\n"
            "occurs, and the command that trains on it. Of large data it reads rows from all over\n"
            "them, and says how many. Of several files the first is looked into, and up to 64 "
            "more\n"
            "are compared with it. FILE may be a folder or a pattern, too.\n\n"
            "Examples:\n"
            "  lockstep data look 'scans/*.h5'\n"
            "  lockstep data look data/fashion/train --png some.png\n",
        .table =
            {{"Output",
              {path_option(
                   "png", "OUT.png", options->sheet, "write some images side by side; a new file"),
               flag_option("json", options->as_json, "a JSON object")}}},
        .positionals = 1,
        .optional_positionals = most_data_words,
        .run = [options](const Invocation& call) {
            options->columns = terminal_columns();
            print_once(first_look(data_of_words(call.positionals), *options));
            return 0;
        }};
}

}  // namespace lockstep
