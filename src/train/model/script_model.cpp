// SPDX-License-Identifier: Apache-2.0
// TorchScript's executors rewrite a graph after they have seen it run a few times: how often a rank
// has run it depends on how many ranks there are. They are switched off, and the interpreter runs
// the graph as it was saved, operator by operator.
//
// Tested: train/model/model_file_test.cpp, install/consumer (verify over numbers of ranks).
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include "model/model_file.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

namespace lockstep {
namespace {

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
    check(place != tensors.end() && fits(place->tensor), [&] {
        return Error(
            "E304",
            fmt::format("'{}' has no '{}' of the checkpoint's shape", path.string(), value.name),
            "the checkpoint is of another model",
            "use the model that the run was trained with");
    });
    return place->tensor;
}

class ScriptModel : public Model {
  public:
    explicit ScriptModel(torch::jit::Module module) : module_(std::move(module)) {
        module_.train();
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        const torch::jit::GraphOptimizerEnabledGuard as_saved(false);
        std::vector<c10::IValue> values;
        for (const NamedTensor& input : inputs) values.emplace_back(natural(input.tensor));
        const c10::IValue output = module_.forward(std::move(values));
        check(output.isTensor(), [&] {
            return Error("E217",
                         fmt::format("the model gives a {}", output.tagKind()),
                         "training takes one tensor",
                         "return only that from its forward()");
        });
        return {{"output", output.toTensor()}};
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
};

}  // namespace

std::unique_ptr<Model> open_script(const fs::path& path) {
    torch::jit::getProfilingMode() = false;
    torch::jit::getExecutorMode() = false;
    torch::jit::Module module = load_script(path);
    check(module.find_method("forward").has_value(),
          [&] { return unreadable(path, "it has no forward()"); });
    return std::make_unique<ScriptModel>(std::move(module));
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
