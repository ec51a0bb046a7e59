// SPDX-License-Identifier: Apache-2.0
// Wrong inputs and the messages that users must get for them, as a table.
#pragma once

#include "program.hpp"

#include <functional>
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

/// In `words` and `message`, <data> is a good data set and <tmp> the case's own folder.
struct BadInput {
    std::string name;
    Finder finder;
    int exit_code;
    Words words = {};
    std::string message = {};  ///< all that the program may say; <same> is where ranks are named
    std::function<void(const TempDir&)> prepare = [](const TempDir&) {};
    Variables variables = {};

    bool is_training() const { return words.front() == "train"; }
};

inline void PrintTo(const BadInput& input, std::ostream* out) {
    *out << input.name;
}

/// Mistakes in options, configuration files and variables, data sets, files to pack, and runs.
std::vector<BadInput> bad_inputs();

}  // namespace lockstep::test
