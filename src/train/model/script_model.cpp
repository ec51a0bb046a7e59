// SPDX-License-Identifier: Apache-2.0
// TorchScript's executors rewrite a graph after they have seen it run a few times: how often a rank
// has run it depends on how many ranks there are. They are switched off, and the interpreter runs
// the graph as it was saved, operator by operator.
//
// Tested: train/model/model_file_test.cpp, install/consumer (verify over numbers of ranks).
#include "lockstep/core/error.hpp"

#include "model/model_file.hpp"

#include <utility>

#include <fmt/format.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

namespace lockstep {
namespace {

Error unreadable(const std::filesystem::path& path, const std::string& text) {
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
    // A parameter that was frozen before it was saved stays what the file says.
    NamedTensors parameters() const override {
        NamedTensors learning = saved_tensors(module_.named_parameters());
        std::erase_if(learning, [](const NamedTensor& one) { return !one.tensor.requires_grad(); });
        return learning;
    }
    NamedTensors buffers() const override { return saved_tensors(module_.named_buffers()); }
    void set_mode(ModelMode mode) override { module_.train(mode == ModelMode::train); }

  private:
    torch::jit::Module module_;
};

}  // namespace

std::unique_ptr<Model> open_script(const std::filesystem::path& path) {
    torch::jit::getProfilingMode() = false;
    torch::jit::getExecutorMode() = false;
    try {
        return std::make_unique<ScriptModel>(torch::jit::load(path.string()));
    } catch (const c10::Error& error) {
        throw unreadable(path, error.what_without_backtrace());
    } catch (const std::exception& error) {
        throw unreadable(path, error.what());
    }
}

}  // namespace lockstep
