// SPDX-License-Identifier: Apache-2.0
// From command-line arguments to an exit code.
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

/// train_model, or nullptr in the program without LibTorch.
using TrainFunction = TrainResult (*)(const TrainSettings&, const Communicator&);
/// infer, or nullptr.
using InferFunction = InferResult (*)(const InferSettings&, const Communicator&);
/// sample_tokens, or nullptr.
using SampleFunction = std::string (*)(const SampleSettings&, const Communicator&);
/// profile_model, or nullptr.
using ProfileFunction = ModelProfile (*)(const ProfileSettings&);

/// prune_run, or nullptr.
using PruneFunction = PruneResult (*)(const PruneSettings&);
/// export_script, or nullptr.
using ExportScriptFunction = ExportSummary (*)(const std::filesystem::path&,
                                               const std::filesystem::path&,
                                               const std::filesystem::path&,
                                               ExportedTensors);

/// The program that runs a command.
struct Program {
    TrainFunction train = nullptr;
    InferFunction infer = nullptr;
    SampleFunction sample = nullptr;
    ProfileFunction profile = nullptr;
    PruneFunction prune = nullptr;
    ExportScriptFunction export_script = nullptr;
    std::string
        model;  ///< name of a user's own model, which is then the default of --model; "": none
    std::string name = "lockstep";
};

/// Returns the program of ranks that compute: this program if it can train, else lockstep-train
/// beside it.
std::filesystem::path rank_program(const Program& program);

/// Returns the program that our own mpirun starts: that program directly, unless OpenMP would bind
/// its first thread while it is loaded. Then ranks begin as this program, which binds them first.
std::filesystem::path launched_program(const Program& program);

/// The environment of a command in its process.
struct ProcessContext {
    Program program;
    Communicator ranks;  ///< all ranks of a launcher; one without a launcher
    std::shared_ptr<const RankFacts> facts = std::make_shared<RankFacts>();
};

/// Collective. Runs the command that `words` name. Returns its exit code, or throws Error.
int run_command(const std::vector<std::string>& words, const ProcessContext& process);

/// Calls run_command() and shows errors in the usual form. Under a launcher all ranks end with one
/// exit code, and a common error is shown once. A rank of a command that computes becomes
/// lockstep-train if this program cannot compute, so that all else starts without loading LibTorch.
int run_program(const std::vector<std::string>& words, const Program& program);

/// For a process that is refused its first memory: writes E225 without allocating, and returns its
/// exit code.
int end_without_room() noexcept;

/// Reports why this process cannot even begin, once on each node. Returns the exit code.
int fail_to_start(const std::exception& reason);

}  // namespace lockstep
