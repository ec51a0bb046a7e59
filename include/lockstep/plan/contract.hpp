// SPDX-License-Identifier: Apache-2.0
/// @file
/// The facts that decide a run's bits, as run.json and checkpoints record them, and a hash that
/// proves them. They detect ranks, and starts of a run, that compute other bits before these train
/// together.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/environment.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/run_directory.hpp"

#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Returns {name: value}.
Json json_of(const std::vector<NamedValue>& values);

/// Returns {key: origin of its value}.
Json origins_of(const TrainSettings& settings);

/// Returns a Markdown table of all settings, for TensorBoard.
std::string settings_text(const TrainSettings& settings);

/// Returns true if the `recorded` run uses adamw and weight decay from the time before biases and
/// norms were exempt. Such a run continues to decay them.
bool decayed_all(const Json& recorded);

/// Returns the facts that decide the bits of the run, in run.json's terms: settings, `digests` of
/// the files that they name, and the version of LibTorch. A setting without an effect decides
/// nothing even if it is `recorded`: the run continues without it.
Json deciding_facts(const TrainSettings& settings,
                    const Json& digests,
                    const std::string& libtorch,
                    const Json& recorded);

/// Compares the `length` of a start with the steps that the run has done. A run that was complete
/// may become longer: then the `recorded` contracts take the length of `now`. Returns a line about
/// the learning rate for the log, or "". Errors: E106 if it has done more steps.
std::string settle_length(const TrainSettings& settings,
                          const RunLength& length,
                          const BitContract& now,
                          std::vector<BitContract>& recorded);

/// Returns the record of a new run, whose V and instruction set are known.
RunRecord run_facts(const TrainSettings& settings,
                    const BitContract& contract,
                    const std::string& libtorch);

/// Collective. Returns {"model-digest": XXH3-128 of the file} if --model names a file; the same on
/// all ranks. Errors: E201, E202 for an unreadable file; E605 if ranks have different files.
Json agreed_digests(const Communicator& ranks, const TrainSettings& settings);

/// Settings that ranks settle after they were given.
inline constexpr std::array<std::string_view, 4> settled_settings{
    "device", "isa", "task", "virtual-ranks"};

/// Returns the settings that `run` was made with, by their names, for those options of `table` that
/// it recorded: as they were given or, if ranks settled them, as these did. Its length is that of
/// its newest start. Relative paths are made absolute, and a model's file is the run's own copy.
/// Errors: as read_run_record().
std::map<std::string, std::string> recorded_values(const fs::path& run, const OptionTable& table);

/// A checkpoint of a run: "RUN", "RUN@best", "RUN@400".
struct RunSource {
    fs::path run;
    std::string choice = "newest";  ///< for chosen_checkpoint()
};
/// Parses one.
RunSource run_source(const std::string& text);

/// Returns the settings in which two runs differ: "lr 0.001 -> 0.01, epochs 2 -> 5"; "" if in none.
std::string changes_text(const Json& deciding, const Json& then);

/// The content of run.json for commands that use the run without continuing it.
struct RunSettings {
    TrainSettings settings;    ///< with V, instruction set and task as the run resolved them
    std::string data_digest;   ///< digest of the training data
    std::string data_content;  ///< digest of its samples; "": the run does not have it
    std::string model_digest;  ///< digest of the model's file; "": the model is built in
};

/// Reads run.json. Errors: E201, E202, E222; those of set_setting().
RunSettings read_run_settings(const fs::path& run);

/// Checks that the model's file of `run` is the one that it was trained with. Errors: E306; E201
/// and kin.
void check_model_file(const RunSettings& run);

/// Returns the file that the model of `run` came from, which is as it was. `wanted` is its kind,
/// `format` what --format calls it. Errors: E106 if the model is of another kind, E201 and kin for
/// the file, E306 if it has changed.
fs::path trained_model_file(const fs::path& run, ModelSource wanted, std::string_view format);

/// Writes to `run` what prediction needs and it does not have yet: the fields of `data` (names,
/// mean and deviation, classes, columns), and a copy of the model's file, of hash `model_digest`.
/// Errors: E306 if the file has changed since; E401 and kin.
void keep_for_prediction(const fs::path& run,
                         const TrainSettings& settings,
                         const DatasetIndex& data,
                         const std::string& model_digest);

/// Returns what a program needs to predict with exported weights of `step`, as JSON: model, task,
/// names of inputs, transform, and the fields of the data. A field with mean and deviation is given
/// as (value / divided_by - mean) / std, a deviation of 0 as 1. "" for runs of earlier versions.
/// Errors: E201, E222.
std::string prediction_facts(const fs::path& run, std::int64_t step);

/// Returns what keep_for_prediction() wrote of the data: an index without samples. Nothing for runs
/// of earlier versions. Errors: E222, E223.
std::optional<DatasetIndex> kept_data(const fs::path& run);

class Record;

/// The result of one rank's test computation, and the machine that it ran on.
struct Canary {
    std::string hash;                              ///< BlankStep::hash
    std::string host;                              ///< host of the rank
    std::string processor;                         ///< model of the rank's processor
    std::map<std::string, std::string> variables;  ///< that may influence the math libraries
};

/// Reads or writes it.
void describe(Record& record, Canary& canary);

/// Returns the canary of this process, computed on `processor`.
Canary make_canary(const std::string& hash,
                   const std::string& host,
                   const std::string& processor,
                   const Environment& environment);

/// Collective. Compares the canaries of a model by `author`. Errors: E707 naming the ranks, nodes,
/// processors and variables that differ, or a user's model where these are equal.
void check_same_canary(const Communicator& ranks, const Canary& mine, ModelAuthor author);

}  // namespace lockstep
