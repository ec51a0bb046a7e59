// SPDX-License-Identifier: Apache-2.0
// From words to an exit code.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/rank_facts.hpp"
#include "lockstep/train/export_script.hpp"
#include "lockstep/train/infer.hpp"
#include "lockstep/train/profile.hpp"
#include "lockstep/train/prune.hpp"
#include "lockstep/train/train.hpp"

#include <exception>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// train_model, or nullptr in the program that does not carry LibTorch.
using TrainFunction = TrainResult (*)(const TrainSettings&, const Communicator&);
/// infer, likewise.
using InferFunction = InferResult (*)(const InferSettings&, const Communicator&);
/// profile_model, likewise.
using ProfileFunction = ModelProfile (*)(const ProfileSettings&);

/// prune_run, likewise.
using PruneFunction = PruneResult (*)(const PruneSettings&);
/// export_script, likewise.
using ExportScriptFunction = ExportSummary (*)(const std::filesystem::path&,
                                               const std::filesystem::path&,
                                               const std::filesystem::path&,
                                               ExportedTensors);

/// The program that runs a command.
struct Program {
    TrainFunction train = nullptr;
    InferFunction infer = nullptr;
    ProfileFunction profile = nullptr;
    PruneFunction prune = nullptr;
    ExportScriptFunction export_script = nullptr;
    std::string model;  ///< a user's own, which is then the default of --model; "": none
    std::string name = "lockstep";
};

/// What the ranks of commands that compute are: this program where it can train, or else
/// lockstep-train beside it.
std::filesystem::path rank_program(const Program& program);

/// What an mpirun of our own starts: that program at once, unless OpenMP would bind its first
/// thread while it is loaded. Then ranks begin as this program, which binds them first.
std::filesystem::path launched_program(const Program& program);

/// What every command finds in the process that it runs in.
struct ProcessContext {
    Program program;
    Communicator ranks;  ///< all that a launcher started; one without
    std::shared_ptr<const RankFacts> facts = std::make_shared<RankFacts>();
};

/// Collective. Runs the command that `words` name. Returns its exit code, or throws Error.
int run_command(const std::vector<std::string>& words, const ProcessContext& process);

/// run_command() with errors shown in the form users know. Under a launcher all ranks end with one
/// exit code, and an error that all ranks share is said once. A rank of a command that computes
/// in a program that cannot becomes lockstep-train: all else starts without loading LibTorch.
int run_program(const std::vector<std::string>& words, const Program& program);

/// For a process that is refused its first memory: writes E225 without any, and returns its exit
/// code.
int end_without_room() noexcept;

/// Says why this process cannot even begin, once on each node. Returns the exit code.
int fail_to_start(const std::exception& reason);

}  // namespace lockstep
