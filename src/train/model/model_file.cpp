// SPDX-License-Identifier: Apache-2.0
#include "model/model_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/plan/model_table.hpp"

#include "model/known_errors.hpp"

#include <cstring>
#include <map>

#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/utils.h>

namespace lockstep {
namespace {

Error unusable(const fs::path& path, const std::string& why, const std::string& fix) {
    return Error("E250", fmt::format("'{}' is no model for this program", path.string()), why, fix);
}

constexpr const char* rebuild = "build it against this Lockstep and its LibTorch";

// A library stays open: models made by it live as long as the process.
const ModelPlugin& open_plugin(const fs::path& path) {
    void* const library = ::dlopen(fs::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
    check(library != nullptr, [&] { return unusable(path, ::dlerror(), rebuild); });
    using Entry = const ModelPlugin* (*)();
    const auto entry = reinterpret_cast<Entry>(::dlsym(library, "lockstep_model_plugin"));
    check(entry != nullptr, [&] {
        return unusable(path,
                        "it has no lockstep_model_plugin()",
                        "end its source with LOCKSTEP_MODEL_PLUGIN(YourModel)");
    });
    check_plugin(*entry(), path);
    return *entry();
}

// Names may share a tensor, but one vector has a place for each name. Buffers are copied as they
// lie, and sums of what is not finite say nothing.
template <class Fail>
void check_memory(const Model& model, const std::string& name, const Fail& fail) {
    std::map<const void*, std::string> owners;
    NamedTensors tensors = model.parameters();
    for (const NamedTensor& buffer : model.buffers()) {
        check(buffer.tensor.is_contiguous(),
              [&] { return fail(fmt::format("buffer '{}' is not contiguous", buffer.name)); });
        check(buffer.tensor.isfinite().all().template item<bool>(), [&] {
            return fail(fmt::format("buffer '{}' has values that are not finite", buffer.name));
        });
        tensors.push_back(buffer);
    }
    for (const auto& [key, tensor] : tensors) {
        if (tensor.numel() == 0) continue;
        const auto [other, is_new] = owners.try_emplace(tensor.const_data_ptr(), key);
        check(is_new, [&, owner = other->second] {
            return unusable(name,
                            fmt::format("'{}' and '{}' are one tensor", owner, key),
                            "register it once, and use it in forward() as often as you like");
        });
    }
}

// Tensors that ranks sum, average and keep must have suitable types.
void check_tensors(const Model& model, const std::string& name) {
    const auto fail = [&](const std::string& why) {
        return unusable(
            name,
            why,
            "make parameters f32, buffers f32 or single whole numbers, each its own and finite");
    };
    const NamedTensors parameters = model.parameters();
    check(!parameters.empty(), [&] { return fail("it has no parameter that learns"); });
    const auto check_is_f32 = [&](const NamedTensor& one, const char* kind) {
        check(one.tensor.scalar_type() == at::kFloat, [&] {
            return unusable(name,
                            fmt::format("{} '{}' is {}, not f32",
                                        kind,
                                        one.name,
                                        at::toString(one.tensor.scalar_type())),
                            one.tensor.is_complex() ? way_from_complex : way_from_other_reals);
        });
    };
    for (const NamedTensor& one : parameters) check_is_f32(one, "parameter");
    if (!model.has_frozen_in_file())
        for (const NamedTensor& one : model.frozen()) check_is_f32(one, "frozen parameter");
    check_memory(model, name, fail);
    for (const auto& [key, tensor] : model.buffers()) {
        const bool is_counter =
            !tensor.is_floating_point() && tensor.numel() == 1 && !tensor.is_complex();
        check(tensor.scalar_type() == at::kFloat || is_counter, [&] {
            return fail(fmt::format("buffer '{}' holds {} values of type {}",
                                    key,
                                    tensor.numel(),
                                    at::toString(tensor.scalar_type())));
        });
    }
}

template <class Make>
std::unique_ptr<Model> constructed(const ModelSettings& settings, ModelAuthor author, Make&& make) {
    auto module = in_model(author, ModelPlace::constructor, make);
    check(module != nullptr, [&] {
        return unusable(settings.name, "its factory gives none", "return a model from it");
    });
    return model_of(std::move(module), author, settings.output);
}

std::unique_ptr<Model> opened(const ModelSettings& settings,
                              const ModelShape& shape,
                              std::uint64_t seed) {
    switch (source_of(settings.name)) {
        case ModelSource::script:
            return open_script(settings.name);
        case ModelSource::program:
            return open_program(settings);
        case ModelSource::plugin: {
            const ModelPlugin& plugin = open_plugin(settings.name);
            torch::manual_seed(CounterRandom(Purpose::initial_weights, {seed}).next() >> 1);
            return constructed(
                settings, ModelAuthor::user_class, [&] { return plugin.make(shape, settings); });
        }
        default:
            return constructed(
                settings,
                find_built_in(settings.name) ? ModelAuthor::lockstep : ModelAuthor::user_class,
                [&] { return make_model(settings, shape, seed); });
    }
}

}  // namespace

void check_plugin(const ModelPlugin& plugin, const fs::path& path) {
    check(plugin.version == plugin_version, [&] {
        return unusable(
            path,
            fmt::format("it is a plug-in of version {}, not {}", plugin.version, plugin_version),
            rebuild);
    });
    check(std::strcmp(plugin.libtorch, TORCH_VERSION) == 0, [&] {
        return unusable(
            path,
            fmt::format("it was built with LibTorch {}, not {}", plugin.libtorch, TORCH_VERSION),
            rebuild);
    });
    check(plugin.shape_bytes == plugin_shape_bytes, [&] {
        return unusable(path, "it was built with the headers of another Lockstep", rebuild);
    });
}

std::unique_ptr<Model> open_model(const ModelSettings& settings,
                                  const ModelShape& shape,
                                  std::uint64_t seed) {
    std::unique_ptr<Model> model = opened(settings, shape, seed);
    check_tensors(*model, settings.name);
    return model;
}

}  // namespace lockstep
