// SPDX-License-Identifier: Apache-2.0
// The settings of a run that is there, from its run.json.
#pragma once

#include "lockstep/train/settings.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// What run.json says, for those that use the run and do not go on with it.
struct RunSettings {
    TrainSettings settings;    ///< V, instruction set and task as they were settled
    std::string data_digest;   ///< of the training data
    std::string data_content;  ///< of its samples; "": the run does not have it
    std::string model_digest;  ///< of the model's file; "": it is built in
};

/// Errors: E201, E202, E222 for run.json; those of set_setting().
RunSettings read_run_settings(const std::filesystem::path& run);

}  // namespace lockstep
