// SPDX-License-Identifier: Apache-2.0
// Whether --model names a model or a file.
#pragma once

#include <string>

namespace lockstep {

/// What a model comes from.
enum class ModelSource { registered, plugin, script };

/// By its ending: ".so" is a plug-in, ".pt" or ".pth" TorchScript.
ModelSource source_of(const std::string& model);

}  // namespace lockstep
