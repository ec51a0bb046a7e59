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

/// Selection of samples: all, or one side of the run's --split.
enum class RunPart { all, trained, held_out };

/// Settings of infer(). Model, task and transform come from the run.
struct InferSettings {
    std::filesystem::path run;      ///< folder of a run, whose newest whole checkpoint is used
    std::filesystem::path weights;  ///< safetensors to use instead of the checkpoint; "": none
    std::string
        channels;  ///< channels of pruned `weights`, see ModelSettings; "": those of the run
    std::filesystem::path data;  ///< data to read
    std::string fields;  ///< fields of foreign HDF5, as TrainSettings::fields; "": those of the run
    bool follows_links = false;   ///< for foreign HDF5; the run's setting applies too
    RunPart part = RunPart::all;  ///< a part requires that `data` are the run's own
    std::filesystem::path
        train_data;  ///< data whose statistics normalise; "": where the run had them
    /// New file for the model's outputs: .npy, or .h5 or .hdf5 with data set "predictions". "":
    /// metrics are computed instead.
    std::filesystem::path outputs;
};

/// Results of infer(), the same on all ranks.
struct InferResult {
    EvaluationRecord evaluation;      ///< metrics, if there are no `outputs`
    std::string confusion;            ///< confusion matrix as CSV; "": none
    std::string by_class;             ///< table of figures of each class; "": none
    std::uint64_t samples = 0;        ///< number of samples in the data set, or in its part
    std::vector<std::int64_t> shape;  ///< shape of the outputs: f32, by sample number
};

/// Collective. Evaluates every sample once, in evaluation mode, on the run's virtual ranks: the
/// bits are the same on any number of ranks up to V. If the run keeps a moving average of its
/// weights, that is used. For outputs the data set needs no targets. Errors: those of reading runs,
/// checkpoints and data sets; E103 another ending of `outputs`; E106 a part of a run without
/// --split or of other data than it was trained on. E217 the data do not fit; E301 no checkpoint;
/// E304 other weights; E306 other training data; E407 `outputs` exist.
InferResult infer(const InferSettings& settings, const Communicator& ranks);

}  // namespace lockstep
