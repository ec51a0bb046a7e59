// SPDX-License-Identifier: Apache-2.0
// Short trainings that commands make as tests, each in a scratch folder.
#pragma once

#include "command.hpp"

#include <cstdint>

namespace lockstep {

struct ShortTraining {
    std::vector<std::string> words;  ///< "train" and its options, without --run
    int np = 1;                      ///< number of ranks on this machine; may exceed the cores
    fs::path run;                    ///< a run directory that does not exist yet
};

/// Returns the words of `train` that reproduce the options of `call`, except those in `left_out`
/// and those that a short training is given anew (ranks, steps, run) or goes without (checkpoints
/// on the way, tests).
std::vector<std::string> words_of_train(const Invocation& call,
                                        const std::vector<std::string>& left_out);

struct TrainingEnd {
    int exit_code = 0;         ///< the rest is valid only with 0, except `output`
    std::string output{};      ///< all its output
    std::string parameters{};  ///< hash of the parameters
    int virtual_ranks = 1;     ///< V
};

/// Trains under its own mpirun and waits; `meanwhile` is called ten times a second, and may throw.
/// Errors: those of mpirun_line() and LaunchFolder.
TrainingEnd run_training(const ShortTraining& training, const std::function<void()>& meanwhile);

/// Throws E242 if a signal asks this process to end; `doing` is "the comparison". For commands that
/// keep no results.
void give_up_if_asked(const std::string& doing);

}  // namespace lockstep
