// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inference with a trained run: its metrics on any data set, or its outputs for any data set.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Numbers that are written for each sample. logits: the model's outputs, which are the only ones
/// of regression and of programs. probabilities: of classes (softmax), or of labels (sigmoid).
/// classes: the number of the most probable class; of each label 1 or 0.
enum class OutputForm { logits, probabilities, classes };

/// Selection of samples: all, or one side of the run's --split.
enum class RunPart { all, trained, held_out };

/// Settings of infer(). Model, task and transform come from the run.
struct InferSettings {
    std::filesystem::path run;      ///< folder of a run
    std::string step = "newest";    ///< its checkpoint, see chosen_checkpoint()
    std::filesystem::path weights;  ///< safetensors to use instead of the checkpoint; "": none
    /// Channels of pruned `weights`, see ModelSettings; "": those of the run.
    std::string channels{};
    std::filesystem::path data{};  ///< data to read
    /// Fields of foreign HDF5, as TrainSettings::fields; "": those of the run.
    std::string fields{};
    bool follows_links = false;        ///< for foreign HDF5; the run's setting applies too
    RunPart part = RunPart::all;       ///< a part requires that `data` are the run's own
    std::filesystem::path train_data;  ///< data whose statistics normalise; "": as the run has them
    /// New file for the model's outputs: .npy, .h5 or .hdf5 with data set "predictions", or .csv
    /// with one line for each sample. "": metrics are computed instead.
    std::filesystem::path outputs{};
    OutputForm form = OutputForm::logits;  ///< of `outputs`
    std::string row_title = "sample";      ///< of the first column of a .csv
    std::vector<std::string> row_names{};  ///< by sample, for rank 0; empty: their numbers
};

/// Results of infer(), the same on all ranks.
struct InferResult {
    EvaluationRecord evaluation{};      ///< metrics, if there are no `outputs`
    std::string confusion{};            ///< confusion matrix as CSV; "": none
    std::string by_class{};             ///< table of figures of each class or target; "": none
    std::int64_t step = 0;              ///< of the checkpoint; 0: the weights are a file's
    std::uint64_t samples = 0;          ///< number of samples in the data set, or in its part
    std::vector<std::int64_t> shape{};  ///< shape of the outputs, by sample number
    std::string element{};              ///< their type: "f32", "i64"
    std::string names{};                ///< where those of rows and classes are; "": nowhere
};

/// Collective. Evaluates every sample once, in evaluation mode, on the run's virtual ranks: the
/// bits are the same on any number of ranks up to V. If the run keeps a moving average of its
/// weights, that is used. For outputs the data set needs no targets. Errors: those of reading runs,
/// checkpoints and data sets; E103 another ending of `outputs`; E106 a part of a run without
/// --split or of other data than it was trained on, a form that the task or the file does not have.
/// E217 the data do not fit; E301 no checkpoint;
/// E304 other weights; E306 other training data; E407 `outputs` exist.
InferResult infer(const InferSettings& settings, const Communicator& ranks);

/// Checks that InferSettings::outputs can be made at `path`. Errors: E103 another ending; E407 it
/// exists.
void check_new_outputs(const std::filesystem::path& path);

/// Settings of sample_tokens().
struct SampleSettings {
    InferSettings from;         ///< `run`, and `step` or `weights`
    std::string prompt;         ///< text; numbers with blanks between if tokens are no bytes
    std::int64_t tokens = 200;  ///< number of tokens to choose
    double temperature = 1;     ///< divisor of the logits; 0: always the most probable token
    std::int64_t top = 0;       ///< most probable tokens to choose from; 0: all
    std::int64_t seed = 1;
};

/// Returns the prompt with the tokens that a model of next tokens chooses after it, in its form.
/// One process. The choices follow from the seed. Errors: those of infer(); E103 a token that the
/// run does not have; E106 a run of another task.
std::string sample_tokens(const SampleSettings& settings, const Communicator& ranks);

}  // namespace lockstep
