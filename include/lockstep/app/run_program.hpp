// SPDX-License-Identifier: Apache-2.0
/// @file
/// Lockstep's command line as a program of your own, which trains a model of your own.
#pragma once

#include "lockstep/train/model.hpp"

#include <string>

namespace lockstep {

/// Does what `lockstep` does with the same words, with `factory`'s model under the name `model` as
/// the default of --model: options, messages, exit codes, run directories and the promise of equal
/// bits. Returns the exit code; throws nothing.
///
/// Call it first in main(): this program is started again for each rank of --np and --hosts, and
/// once more by a rank that binds itself to cores. `model` is kept with a run, which no other model
/// goes on with. Commands that write about or start `lockstep` itself ("submit") are left out.
/// E103 is the error of a name that is empty or one of model_names() already.
[[nodiscard]] int run_program(int argc,
                              const char* const* argv,
                              const std::string& model,
                              ModelFactory factory);

}  // namespace lockstep
