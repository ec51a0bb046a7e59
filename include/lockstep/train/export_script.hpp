// SPDX-License-Identifier: Apache-2.0
/// @file
/// A trained model as a file like the one that it came from: code and weights in one file.
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

/// The same of a program of torch.export: the archive that `run` was trained with, byte for byte
/// but for values of `checkpoint`, for Python's torch.export.load() and --model. Of `options`,
/// `tensors` is of_model or averaged. Errors: as above.
ExportSummary export_program(const std::filesystem::path& run,
                             const std::filesystem::path& checkpoint,
                             const std::filesystem::path& file,
                             const WeightsExport& options = {});

/// export_checkpoint(), and of a run with a program what Python's load_state_dict(strict=True)
/// wants besides: frozen parameters, other names of tied ones and buffers that nothing writes, from
/// the run's program. A warning says if they are left out since that is not there any more.
ExportSummary export_weights(const std::filesystem::path& run,
                             const std::filesystem::path& checkpoint,
                             const std::filesystem::path& file,
                             const WeightsExport& options = {});

}  // namespace lockstep
