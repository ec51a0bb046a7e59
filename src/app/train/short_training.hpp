// SPDX-License-Identifier: Apache-2.0
// Trainings that a command makes to look at them, each in a scratch folder.
#pragma once

#include "command.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// One of them.
struct ShortTraining {
    std::filesystem::path program;   ///< of its ranks
    std::vector<std::string> words;  ///< "train" and its options, but for --run
    int np = 1;                      ///< ranks, on this machine, more than cores if need be
    std::filesystem::path run;       ///< a run directory that is not there yet
};

/// The words of `train` that reproduce what was given to `call`, but for the options `left_out`.
std::vector<std::string> words_of_train(const Invocation& call,
                                        const std::vector<std::string>& left_out);

/// How one ended.
struct TrainingEnd {
    int exit_code = 0;         ///< the rest is there with 0 alone, but for `output`
    std::string output{};      ///< all that it said
    std::string parameters{};  ///< their hash
    int virtual_ranks = 1;     ///< V
};

/// Trains under an mpirun of its own and waits; `meanwhile` is called ten times a second, and may
/// throw. Errors: those of mpirun_line() and LaunchFolder.
TrainingEnd run_training(const ShortTraining& training, const std::function<void()>& meanwhile);

/// The same; returns the hash of the parameters. Errors: also E705, after what the training said.
std::string train_shortly(const ShortTraining& training, const std::function<void()>& meanwhile);

/// How many steps the first start of `run` has done, as far as the first rank's file of steps
/// tells, which grows by many at once.
std::int64_t steps_done(const std::filesystem::path& run);

/// Throws Error E242 if a signal asked this process to end; `doing` is "the comparison". For
/// commands of which nothing is kept.
void give_up_if_asked(const std::string& doing);

}  // namespace lockstep
