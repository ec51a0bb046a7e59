// SPDX-License-Identifier: Apache-2.0
/// @file
/// What decides a run's bits, as run.json and checkpoints say it, and a hash that proves it: ranks,
/// and starts of a run, that compute other bits are told apart by it before they train together.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// {name: value}
Json json_of(const std::vector<NamedValue>& values);

/// {key: where its value came from}
Json origins_of(const TrainSettings& settings);

/// A Markdown table of all settings, for TensorBoard.
std::string settings_text(const TrainSettings& settings);

/// Whether the `recorded` run was made with adamw and weight decay before that spared biases and
/// norms: it goes on decaying them.
bool decayed_all(const Json& recorded);

/// What decides the bits of the run, in run.json's words: settings, and `digests` of the files
/// that they name, and the version of LibTorch. A setting without an effect decides nothing,
/// whatever was `recorded`: the run goes on without it.
Json deciding_facts(const TrainSettings& settings,
                    const Json& digests,
                    const std::string& libtorch,
                    const Json& recorded);

/// Of a new run, whose V and instruction set are settled.
RunRecord run_facts(const TrainSettings& settings,
                    const BitContract& contract,
                    const std::string& libtorch);

/// Collective. {"model-digest": XXH3-128 of the file} where --model names one; the same on all
/// ranks. Errors: E201, E202 for a file that cannot be read; E605 if ranks have different ones.
Json agreed_digests(const Communicator& ranks, const TrainSettings& settings);

/// What run.json says, for those that use the run and do not go on with it.
struct RunSettings {
    TrainSettings settings;    ///< V, instruction set and task as they were settled
    std::string data_digest;   ///< of the training data
    std::string data_content;  ///< of its samples; "": the run does not have it
    std::string model_digest;  ///< of the model's file; "": it is built in
};

/// Errors: E201, E202, E222 for run.json; those of set_setting().
RunSettings read_run_settings(const std::filesystem::path& run);

class Record;

/// What one rank computed, and on what.
struct Canary {
    std::string hash;                              ///< BlankStep::hash
    std::string host;                              ///< of the rank
    std::string processor;                         ///< its model
    std::map<std::string, std::string> variables;  ///< which the libraries that compute may look at
};

/// Reads or writes it.
void describe(Record& record, Canary& canary);

/// The canary of this process, computed on `processor`.
Canary make_canary(const std::string& hash,
                   const std::string& host,
                   const std::string& processor,
                   const Environment& environment);

/// Collective. Of a model by `author`. Errors: E707 naming ranks, nodes, processors and variables
/// that are not alike, or a user's model where these are.
void check_same_canary(const Communicator& ranks, const Canary& mine, ModelAuthor author);

}  // namespace lockstep
