// SPDX-License-Identifier: Apache-2.0
/// @file
/// Inference with a trained run: its metrics on any data set, or its outputs for one.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace lockstep {

/// Which samples of the data: all, or one side of the run's --split.
enum class RunPart { all, trained, held_out };

/// Settings of infer(). Model, task and transform are those of the run.
struct InferSettings {
    std::filesystem::path run;      ///< a run's folder, whose newest whole checkpoint is used
    std::filesystem::path weights;  ///< safetensors to use in its place; "": none
    std::string channels;  ///< of `weights` that were pruned, see ModelSettings; "": the run's
    std::filesystem::path data;        ///< data to read
    std::string fields;                ///< of foreign HDF5, as TrainSettings::fields; "": the run's
    bool follows_links = false;        ///< of foreign HDF5; as the run, too
    RunPart part = RunPart::all;       ///< of `data`, which for a part are the run's own
    std::filesystem::path train_data;  ///< whose statistics normalise; "": where the run had them
    /// New file of the model's outputs: .npy, or .h5 or .hdf5 with data set "predictions"; "":
    /// metrics instead.
    std::filesystem::path outputs;
};

/// What infer() found; the same on all ranks.
struct InferResult {
    EvaluationRecord evaluation;      ///< without `outputs`
    std::string confusion;            ///< CSV of classes; "": none
    std::uint64_t samples = 0;        ///< of the data set, or its part
    std::vector<std::int64_t> shape;  ///< of the outputs, f32, by sample number; with `outputs`
};

/// Collective. Every sample once, in evaluation mode, on the run's virtual ranks: the same bits on
/// any number of ranks up to these. Where the run keeps a moving average of its weights, that is
/// used. For outputs the data set needs no targets. Errors: those of reading runs, checkpoints and
/// data sets; E103 another ending of `outputs`, E106 a part of a run without --split or of other
/// data than it was trained on, E217 if the data do not fit, E301 no checkpoint, E304 other
/// weights, E306 other training data, E407 `outputs` exist.
InferResult infer(const InferSettings& settings, const Communicator& ranks);

}  // namespace lockstep
