// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/plugin.hpp"

#include "support/own_models/own_models.hpp"

#include <cstdlib>
#include <stdexcept>

namespace lockstep::test {
namespace {

std::shared_ptr<Classifier> make(const ModelShape& shape, const ModelSettings&) {
    const char* const name = std::getenv("OWN_MODEL");
    OwnModels models = architectures();
    models.merge(unusual_tensors());
    models.merge(mistakes());
    const auto found = models.find(name == nullptr ? "" : name);
    if (found == models.end()) throw std::runtime_error("OWN_MODEL names no model of the plug-in");
    return found->second(shape);
}

}  // namespace
}  // namespace lockstep::test

extern "C" __attribute__((visibility("default"))) const lockstep::ModelPlugin*
lockstep_model_plugin() {
    static constexpr lockstep::ModelPlugin plugin{lockstep::plugin_version,
                                                  TORCH_VERSION,
                                                  lockstep::plugin_shape_bytes,
                                                  lockstep::test::make};
    return &plugin;
}
