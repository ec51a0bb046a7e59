// SPDX-License-Identifier: Apache-2.0
// The options of `lockstep train`, shared with the commands that run or show it.
#pragma once

#include "lockstep/plan/settings.hpp"

#include "command.hpp"

#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// All values of the command line of `train`.
struct TrainOptions {
    TrainSettings settings;
    int np = 0;         ///< 0: not given
    std::string hosts;  ///< "a:4,b:4"; "": this machine
    bool oversubscribe = false, dry_run = false;
    fs::path config, plan;
    fs::path resume;                       ///< run whose settings hold; "": none
    std::vector<std::string> skip_checks;  ///< checks of the doctor; "all" for all
};

/// Returns the table that fills `options`, which must outlive it.
OptionTable train_option_table(TrainOptions& options);

/// Returns what the run of --resume or --from was made with, for options of `table`; nothing
/// without them. What belongs to one start alone (its ranks below a launcher, its deadline) is left
/// out, and for --from what is that run's own. Errors: E106 for --resume with --run or --from;
/// those of recorded_values().
std::vector<Config> values_of_run(const OptionTable& table,
                                  const ParsedLine& line,
                                  const Environment& environment);

/// Stores the origin of each setting in `settings.origins`, and logs which values override others.
void keep_origins(TrainSettings& settings, const std::vector<ResolvedOption>& resolved);

}  // namespace lockstep
