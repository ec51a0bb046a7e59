// SPDX-License-Identifier: Apache-2.0
// From words to an exit code.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"
#include "lockstep/train/train.hpp"

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// train_model, or nullptr in the program that does not carry LibTorch.
using TrainFunction = TrainResult (*)(const TrainSettings&, const Communicator&);

/// What every command finds in the process that it runs in.
struct ProcessContext {
    TrainFunction train = nullptr;
    Communicator ranks;  ///< all that a launcher started; one without
    std::shared_ptr<const RankFacts> facts = std::make_shared<RankFacts>();
};

/// Collective. Runs the command that `words` name. Returns its exit code, or throws Error.
int run_command(const std::vector<std::string>& words, const ProcessContext& process);

/// run_command() with errors shown in the form users know. Under a launcher all ranks end with one
/// exit code, and an error that all ranks share is said once. Without `train` a rank of `train`
/// becomes lockstep-train, which has one: all else starts without loading LibTorch.
int run_program(const std::vector<std::string>& words, TrainFunction train);

}  // namespace lockstep
