// SPDX-License-Identifier: Apache-2.0
/// @file
/// A trained TorchScript model as TorchScript: code and weights in one file.
#pragma once

#include "lockstep/run/checkpoint.hpp"

#include <filesystem>

namespace lockstep {

/// Writes the TorchScript model of `run` into the new file `file`, which Python's torch.jit.load()
/// and --model can read. Parameters, buffers and counters are those of `checkpoint`; frozen
/// parameters keep their values. `tensors`: of_model or averaged. Errors: E106 if the run's model
/// is not TorchScript; E201 and similar for its file, E306 if that has changed; those of
/// export_checkpoint().
ExportSummary export_script(const std::filesystem::path& run,
                            const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file,
                            ExportedTensors tensors = ExportedTensors::of_model);

}  // namespace lockstep
