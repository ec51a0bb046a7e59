// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "model/model.hpp"

#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class Items>
NamedTensors tensors_in(const Items& items) {
    NamedTensors tensors;
    for (const auto& item : items) tensors.push_back({item.key(), item.value()});
    return tensors;
}

class ModuleModel : public Model {
  public:
    explicit ModuleModel(std::shared_ptr<Classifier> module) : module_(std::move(module)) {}

    NamedTensors forward(const NamedTensors& inputs) override {
        std::vector<at::Tensor> values;
        for (const NamedTensor& input : inputs) values.push_back(input.tensor);
        return {{"output", module_->forward_all(values)}};
    }
    NamedTensors parameters() const override { return tensors_in(module_->named_parameters()); }
    NamedTensors buffers() const override { return tensors_in(module_->named_buffers()); }
    void set_mode(ModelMode mode) override { module_->train(mode == ModelMode::train); }

  private:
    std::shared_ptr<Classifier> module_;
};

}  // namespace

torch::Tensor Classifier::forward_all(const std::vector<torch::Tensor>& inputs) {
    check(inputs.size() == 1, [&] {
        return Error("E217",
                     fmt::format("--inputs names {} fields", inputs.size()),
                     "this model takes one input",
                     "name one, or use a model whose forward_all() takes several");
    });
    return forward(inputs.front());
}

const at::Tensor& only(const NamedTensors& tensors) {
    expect(tensors.size() == 1, "there is one tensor");
    return tensors.front().tensor;
}

std::unique_ptr<Model> model_of(std::shared_ptr<Classifier> module) {
    return std::make_unique<ModuleModel>(std::move(module));
}

}  // namespace lockstep
