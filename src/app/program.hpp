// SPDX-License-Identifier: Apache-2.0
// From command-line arguments to an exit code.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/launch/examine.hpp"
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

/// The program that runs a command. Without LibTorch its functions are nullptr.
struct Program {
    decltype(&train_model) train = nullptr;
    decltype(&lockstep::infer) infer = nullptr;
    decltype(&sample_tokens) sample = nullptr;
    decltype(&profile_model) profile = nullptr;
    decltype(&prune_run) prune = nullptr;
    decltype(&lockstep::export_script) export_script = nullptr;
    std::string
        model;  ///< name of a user's own model, which is then the default of --model; "": none
    std::string name = "lockstep";
};

/// Returns the program of ranks that compute: this program if it can train, else lockstep-train
/// beside it.
fs::path rank_program(const Program& program);

/// Returns the program that our own mpirun starts: that program directly, unless OpenMP would bind
/// its first thread while it is loaded. Then ranks begin as this program, which binds them first.
fs::path launched_program(const Program& program);

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
