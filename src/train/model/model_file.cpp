// SPDX-License-Identifier: Apache-2.0
// TorchScript's executors rewrite a graph after they have seen it run a few times: how often a rank
// has run it depends on how many ranks there are. They are switched off, and the interpreter runs
// the graph as it was saved, operator by operator.
//
// Tested: train/model/model_file_test.cpp, install/consumer (verify over numbers of ranks).

#include "model/model_file.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/plan/model_table.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <sstream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>
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
        return unusable(name,
                        why,
                        "make parameters f32, buffers f32, single whole numbers or bools, each its "
                        "own and finite");
    };
    const NamedTensors parameters = model.parameters();
    check(!parameters.empty(), [&] {
        return unusable(name,
                        "it has no parameter that learns",
                        "leave requires_grad true for those that are to learn when it is made, and "
                        "register them: a plain list of layers registers none");
    });
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

Error unreadable(const fs::path& path, const std::string& text) {
    return Error("E250",
                 fmt::format("'{}' is no TorchScript model", path.string()),
                 text.substr(0, text.find('\n')),
                 "save it with torch.jit.script(model).save(FILE); a file of torch.save() holds "
                 "Python objects");
}

template <class Items>
NamedTensors saved_tensors(const Items& items) {
    NamedTensors tensors;
    for (const auto& item : items) tensors.push_back({item.name, item.value});
    return tensors;
}

// One sample of features is [F], not an image of one pixel.
at::Tensor natural(const at::Tensor& input) {
    const bool is_row = input.dim() == 4 && input.size(2) == 1 && input.size(3) == 1;
    return is_row ? input.flatten(1) : input;
}

torch::jit::Module load_script(const fs::path& path) {
    open_for_reading(path);  // or the error is that there is no such file
    try {
        return torch::jit::load(path.string());
    } catch (const c10::Error& error) {
        throw unreadable(path, error.what_without_backtrace());
    } catch (const std::exception& error) {
        throw unreadable(path, error.what());
    }
}

const at::Tensor& place_of(const NamedTensors& tensors,
                           const NamedTensor& value,
                           const fs::path& path) {
    const auto place = std::ranges::find(tensors, value.name, &NamedTensor::name);
    // A checkpoint keeps a counter as a number, whatever its shape.
    const auto fits = [&](const at::Tensor& tensor) {
        return tensor.sizes() == value.tensor.sizes() ||
               (tensor.numel() == 1 && value.tensor.numel() == 1);
    };
    check(place != tensors.end() && fits(place->tensor),
          "E304",
          fmt::format("'{}' has no '{}' of the checkpoint's shape", path.string(), value.name),
          "the checkpoint is of another model",
          "use the model that the run was trained with");
    return place->tensor;
}

bool has_grad_call(const torch::jit::Block* block) {
    static const c10::Symbol grad = c10::Symbol::fromQualString("aten::grad");
    return std::ranges::any_of(block->nodes(), [](const torch::jit::Node* node) {
        return node->kind() == grad || std::ranges::any_of(node->blocks(), has_grad_call);
    });
}

// Whether forward() calls torch.autograd.grad(), itself or in what it calls.
bool computes_gradients(const torch::jit::Module& module) {
    const auto graph = module.get_method("forward").graph()->copy();
    torch::jit::Inline(*graph);
    return has_grad_call(graph->block());
}

class ScriptModel : public Model {
  public:
    explicit ScriptModel(torch::jit::Module module)
        : module_(std::move(module)), computes_gradients_(computes_gradients(module_)) {
        module_.train();
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        const torch::jit::GraphOptimizerEnabledGuard as_saved(false);
        std::vector<c10::IValue> values;
        for (const NamedTensor& input : inputs) values.emplace_back(natural(input.tensor));
        const bool is_evaluated = !at::GradMode::is_enabled();
        const c10::IValue output = [&] {
            const at::AutoGradMode gradients(computes_gradients_ || !is_evaluated);
            return module_.forward(std::move(values));
        }();
        check(output.isTensor(), [&] {
            return Error("E217",
                         fmt::format("the model gives a {}", output.tagKind()),
                         "training takes one tensor",
                         "return only that from its forward()");
        });
        return {{"output", is_evaluated ? output.toTensor().detach() : output.toTensor()}};
    }
    NamedTensors parameters() const override { return those(Learning::yes); }
    NamedTensors frozen() const override { return those(Learning::no); }
    void freeze(const std::set<std::string>& names) override {
        for (const NamedTensor& one : parameters())
            if (names.contains(one.name)) one.tensor.set_requires_grad(false);
    }
    bool has_frozen_in_file() const override { return true; }
    NamedTensors buffers() const override { return saved_tensors(module_.named_buffers()); }
    void set_mode(ModelMode mode) override { module_.train(mode == ModelMode::train); }
    ModelAuthor author() const override { return ModelAuthor::user_script; }
    std::vector<std::string> input_names() const override {
        std::vector<std::string> names;
        for (const c10::Argument& argument :
             module_.get_method("forward").function().getSchema().arguments())
            if (!argument.default_value()) names.push_back(argument.name());
        names.erase(names.begin());  // the module
        return names;
    }

  private:
    enum class Learning { no, yes };
    NamedTensors those(Learning wanted) const {
        NamedTensors found = saved_tensors(module_.named_parameters());
        std::erase_if(found, [&](const NamedTensor& one) {
            return one.tensor.requires_grad() != (wanted == Learning::yes);
        });
        return found;
    }

    torch::jit::Module module_;
    bool computes_gradients_;  ///< in forward(): they are computed in evaluation, too
};

std::unique_ptr<Model> open_script(const fs::path& path) {
    torch::jit::getProfilingMode() = false;
    torch::jit::getExecutorMode() = false;
    torch::jit::Module module = load_script(path);
    check(module.find_method("forward").has_value(),
          [&] { return unreadable(path, "it has no forward()"); });
    return std::make_unique<ScriptModel>(std::move(module));
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
    const auto check_is = [&](bool ok, const std::string& why) {
        check(ok, [&] { return unusable(path, why, rebuild); });
    };
    check_is(plugin.version == plugin_version,
             fmt::format("it is a plug-in of version {}, not {}", plugin.version, plugin_version));
    check_is(std::strcmp(plugin.libtorch, TORCH_VERSION) == 0,
             fmt::format("it was built with LibTorch {}, not {}", plugin.libtorch, TORCH_VERSION));
    check_is(plugin.shape_bytes == plugin_shape_bytes,
             "it was built with the headers of another Lockstep");
}

std::unique_ptr<Model> open_model(const ModelSettings& settings,
                                  const ModelShape& shape,
                                  std::uint64_t seed) {
    std::unique_ptr<Model> model = opened(settings, shape, seed);
    check_tensors(*model, settings.name);
    return model;
}

std::string script_with(const fs::path& path, const NamedTensors& values) {
    torch::jit::Module module = load_script(path);
    NamedTensors tensors = saved_tensors(module.named_parameters());
    const NamedTensors buffers = saved_tensors(module.named_buffers());
    tensors.insert(tensors.end(), buffers.begin(), buffers.end());
    const at::NoGradGuard no_gradients;
    for (const NamedTensor& value : values) place_of(tensors, value, path).copy_(value.tensor);
    std::ostringstream bytes;
    module.save(bytes);
    return std::move(bytes).str();
}

}  // namespace lockstep
