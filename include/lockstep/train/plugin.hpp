// SPDX-License-Identifier: Apache-2.0
/// @file
/// A model in a shared library, which `lockstep train` opens as --model FILE.so. Such a library
/// holds a Classifier and LOCKSTEP_MODEL_PLUGIN(its name) below it. An example is
/// docs/examples/own-model.
#pragma once

#include "lockstep/train/model.hpp"

#include <cstddef>
#include <memory>
#include <type_traits>

#include <torch/version.h>

namespace lockstep {

/// The data that a plug-in passes to the program that opens it. The first three must equal the
/// program's own, because objects of LibTorch and of the standard library cross between the two.
struct ModelPlugin {
    int version;              ///< version of this struct
    const char* libtorch;     ///< the LibTorch that it was compiled with: "2.11.0"
    std::size_t shape_bytes;  ///< bytes of ModelShape and ModelSettings together
    std::shared_ptr<Classifier> (*make)(const ModelShape&, const ModelSettings&);
};

/// Version of this header and of what it includes. It is 3 since Classifier has forward_named().
inline constexpr int plugin_version = 3;
/// Bytes of the arguments of a plug-in, as this header has them.
inline constexpr std::size_t plugin_shape_bytes = sizeof(ModelShape) + sizeof(ModelSettings);

/// Makes the ModelPlugin of an `Own` model: see LOCKSTEP_MODEL_PLUGIN.
template <class Own>
constexpr ModelPlugin plugin_of() {
    constexpr bool can_be_made =
        std::is_constructible_v<Own, const ModelShape&, const ModelSettings&>;
    static_assert(std::is_base_of_v<Classifier, Own>,
                  "a plug-in's model is a class derived from lockstep::Classifier");
    static_assert(can_be_made,
                  "a plug-in's model needs a constructor that takes (const lockstep::ModelShape&, "
                  "const lockstep::ModelSettings&), and its own forward()");
    return {
        plugin_version,
        TORCH_VERSION,
        plugin_shape_bytes,
        [](const ModelShape& shape, const ModelSettings& settings) -> std::shared_ptr<Classifier> {
            if constexpr (can_be_made) return std::make_shared<Own>(shape, settings);
            return nullptr;
        }};
}

}  // namespace lockstep

/// Exports `Own`, a Classifier that is made from (const ModelShape&, const ModelSettings&). Write
/// it in one source file of the library, outside of namespaces.
#define LOCKSTEP_MODEL_PLUGIN(Own)                                                  \
    extern "C" __attribute__((visibility("default"))) const lockstep::ModelPlugin*  \
    lockstep_model_plugin() {                                                       \
        static constexpr lockstep::ModelPlugin plugin = lockstep::plugin_of<Own>(); \
        return &plugin;                                                             \
    }
