// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lockstep's command line for a program of your own, which trains a model of your own.
#pragma once

#include "lockstep/train/model.hpp"

#include <string>

namespace lockstep {

/// Behaves like the program `lockstep` with the same arguments, with `factory`'s model under the
/// name `model` as the default of --model. Options, messages, exit codes, run directories and the
/// promise of equal bits are the same. Returns the exit code; throws nothing.
///
/// Call it first in main(): this program is started again for each rank of --np and --hosts, and
/// once more by a rank that binds itself to cores. The run records `model`, and no other model can
/// continue the run. Commands that write about or start `lockstep` itself ("submit") are left out.
/// Errors, by exit code: E103 if the name is empty or already in model_names().
[[nodiscard]] int run_program(int argc,
                              const char* const* argv,
                              const std::string& model,
                              ModelFactory factory);

}  // namespace lockstep
