// SPDX-License-Identifier: Apache-2.0
// `lockstep-train`: the same program with LibTorch, for the ranks that train.
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"

#include "command.hpp"

#include <cstdio>

int main(int argc, char** argv) {
    const int code = lockstep::run_program(std::vector<std::string>(argv + 1, argv + argc),
                                           {.train = lockstep::train_model,
                                            .infer = lockstep::infer,
                                            .sample = lockstep::sample_tokens,
                                            .profile = lockstep::profile_model,
                                            .prune = lockstep::prune_run,
                                            .export_script = lockstep::export_script});
    // At exit LibTorch would unregister thousands of operators: a fifth of a short run's processor
    // time.
    lockstep::open_log({});  // what stderr was given goes on to where it led before
    std::fflush(nullptr);
    lockstep::end_process(code);
}
