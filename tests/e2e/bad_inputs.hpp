// SPDX-License-Identifier: Apache-2.0
// Wrong inputs and the messages that users must get for them, as a table.
#pragma once

#include "program.hpp"

#include <functional>
#include <iosfwd>
#include <string>
#include <vector>

namespace lockstep::test {

/// Who finds the mistake when `train` runs on several ranks.
enum class Finder {
    command_line,  ///< the command, before ranks are started; under mpirun every rank
    every_rank,    ///< every rank, after they were started
    first_rank,    ///< rank 0 for all
    some_rank,     ///< one rank, alone, while training; <rank> in the message is its number
};

/// In `words`, `variables` and `message`, <data> is a good data set and <tmp> the case's own
/// folder.
struct BadInput {
    std::string name;
    Words words;
    std::string message;  ///< all that the program may say; <same> is where ranks are named
    std::function<void(const TempDir&)> prepare = [](const TempDir&) {};
    Variables variables = {};
    int exit_code = 0;
    Finder finder = Finder::command_line;

    bool is_training() const { return words.front() == "train"; }
};

void PrintTo(const BadInput& input, std::ostream* out);

/// The same, each found by `finder` and with `exit_code`.
std::vector<BadInput> all_with(int exit_code, Finder finder, std::vector<BadInput> inputs);

/// Those of all `parts`.
std::vector<BadInput> joined(const std::vector<std::vector<BadInput>>& parts);

/// Mistakes in options, configuration files and variables.
std::vector<BadInput> bad_options();

/// Mistakes in files: data sets, files to pack, run directories.
std::vector<BadInput> bad_files();

}  // namespace lockstep::test
