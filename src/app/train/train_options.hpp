// SPDX-License-Identifier: Apache-2.0
// The options of `lockstep train`, shared with the commands that run or show it.
#pragma once

#include "lockstep/plan/settings.hpp"

#include "command.hpp"
#include "options.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Everything the command line of `train` sets.
struct TrainOptions {
    TrainSettings settings;
    int np = 0;         ///< 0: not given
    std::string hosts;  ///< "a:4,b:4"; "": this machine
    bool oversubscribe = false;
    bool dry_run = false;
    std::filesystem::path config, plan;
    std::vector<std::string> skip_checks;  ///< of the doctor's; "all" for all
};

/// The table that fills `options`, which must outlive it.
OptionTable train_option_table(TrainOptions& options);

/// Puts where each setting came from into `settings.origins`; says what overrides what.
void keep_origins(TrainSettings& settings, const std::vector<ResolvedOption>& resolved);

}  // namespace lockstep
