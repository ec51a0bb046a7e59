// SPDX-License-Identifier: Apache-2.0
/// @file
/// A trained TorchScript model as TorchScript: code and weights in one file.
#pragma once

#include "lockstep/run/checkpoint.hpp"

#include <filesystem>

namespace lockstep {

/// Writes the TorchScript model that `run` was trained with, its parameters, buffers and counters
/// those of `checkpoint`, frozen parameters as they were, into the new file `file`: what Python's
/// torch.jit.load() and --model take. `tensors`: of_model or averaged. Errors: E106 if the run's
/// model is none of TorchScript; E201 and kin for its file, E306 if that is another now; those of
/// export_checkpoint().
ExportSummary export_script(const std::filesystem::path& run,
                            const std::filesystem::path& checkpoint,
                            const std::filesystem::path& file,
                            ExportedTensors tensors = ExportedTensors::of_model);

}  // namespace lockstep
