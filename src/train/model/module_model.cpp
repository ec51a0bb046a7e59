// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"

#include "model/model.hpp"

#include <utility>

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
        return {{"output", module_->forward(only(inputs))}};
    }
    NamedTensors parameters() const override { return tensors_in(module_->named_parameters()); }
    NamedTensors buffers() const override { return tensors_in(module_->named_buffers()); }
    void set_mode(ModelMode mode) override { module_->train(mode == ModelMode::train); }

  private:
    std::shared_ptr<Classifier> module_;
};

}  // namespace

const at::Tensor& only(const NamedTensors& tensors) {
    expect(tensors.size() == 1, "there is one tensor");
    return tensors.front().tensor;
}

std::unique_ptr<Model> model_of(std::shared_ptr<Classifier> module) {
    return std::make_unique<ModuleModel>(std::move(module));
}

}  // namespace lockstep
