// SPDX-License-Identifier: Apache-2.0
// Models that are files: plug-ins, TorchScript and programs of torch.export.
#pragma once

#include "lockstep/train/plugin.hpp"

#include "model/model.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace lockstep {

/// Returns the registered model with the settings' name, or the model in the file of that name.
/// Errors: E103, E217 as make_model(); E250 a file that holds no model for this program, or a model
/// with parameters or buffers that cannot be trained here.
std::unique_ptr<Model> open_model(const ModelSettings& settings,
                                  const ModelShape& shape,
                                  std::uint64_t seed);

/// Checks the versions of a plug-in. Errors: E250 naming what in `path` does not match this
/// program.
void check_plugin(const ModelPlugin& plugin, const fs::path& path);

/// Opens the program of torch.export in the file `settings.name`, with the weights in it. It gives
/// `settings.output` alone, if that is not "". Errors: E103 if there is no such output, E107 if
/// `settings.program_mode` has no effect; E201 and kin; E250.
std::unique_ptr<Model> open_program(const ModelSettings& settings);

/// Returns the bytes of the TorchScript model in `path` with `values` in place of its own tensors
/// of these names. Errors: E250; E304 if it has none of such a name and shape.
std::string script_with(const fs::path& path, const NamedTensors& values);

}  // namespace lockstep
