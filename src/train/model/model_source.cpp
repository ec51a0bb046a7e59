// SPDX-License-Identifier: Apache-2.0
#include "model/model_source.hpp"

#include <filesystem>

namespace lockstep {

ModelSource source_of(const std::string& model) {
    const std::filesystem::path ending = std::filesystem::path(model).extension();
    if (ending == ".so") return ModelSource::plugin;
    if (ending == ".pt" || ending == ".pth") return ModelSource::script;
    return ModelSource::registered;
}

}  // namespace lockstep
