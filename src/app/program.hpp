// SPDX-License-Identifier: Apache-2.0
// From words to an exit code.
#pragma once

#include "lockstep/train/train.hpp"

#include <string>
#include <vector>

namespace lockstep {

/// train_model, or nullptr in the program that does not carry LibTorch.
using Trainer = TrainResult (*)(const TrainSettings&, const Communicator&);

/// Runs the command that `words` name. Returns its exit code, or throws Error.
int run_command(const std::vector<std::string>& words, Trainer trainer);

/// run_command() with errors shown in the form users know. Under a launcher all ranks end with one
/// exit code, and an error that all ranks share is said once. Without a trainer a rank of `train`
/// becomes lockstep-train, which has one: all else starts without loading LibTorch.
int run_program(const std::vector<std::string>& words, Trainer trainer);

}  // namespace lockstep
