// SPDX-License-Identifier: Apache-2.0
// The file of a run's model, for exports that are files of its kind.
#pragma once

#include "lockstep/plan/model_table.hpp"

#include <filesystem>
#include <string_view>

namespace lockstep {

/// The file that the model of `run` came from, which is as it was. `wanted` is its kind, `format`
/// what --format calls it. Errors: E106 if the model is of another kind, E201 and kin for the file,
/// E306 if it has changed.
std::filesystem::path trained_model_file(const std::filesystem::path& run,
                                         ModelSource wanted,
                                         std::string_view format);

}  // namespace lockstep
