// SPDX-License-Identifier: Apache-2.0
#include "model/device_model.hpp"

#include "lockstep/core/error.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

namespace lockstep {
namespace {

class DeviceModel : public Model {
  public:
    DeviceModel(std::unique_ptr<Model> model, at::Device device)
        : model_(std::move(model)), device_(device) {
        const at::NoGradGuard no_gradients;
        for (const NamedTensors& tensors :
             {model_->parameters(), model_->buffers(), model_->frozen()})
            for (const NamedTensor& named : tensors)
                named.tensor.set_data(named.tensor.to(device_));
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        return model_->forward(moved_to(device_, inputs));
    }
    NamedTensors parameters() const override { return model_->parameters(); }
    NamedTensors buffers() const override { return model_->buffers(); }
    NamedTensors frozen() const override { return model_->frozen(); }
    void freeze(const std::set<std::string>& names) override { model_->freeze(names); }
    bool has_frozen_in_file() const override { return model_->has_frozen_in_file(); }
    NamedTensors fixed() const override { return model_->fixed(); }
    void set_mode(ModelMode mode) override { model_->set_mode(mode); }
    ModelAuthor author() const override { return model_->author(); }

  private:
    std::unique_ptr<Model> model_;
    at::Device device_;
};

}  // namespace

std::unique_ptr<Model> on_device(std::unique_ptr<Model> model, at::Device device) {
    if (device.is_cpu()) return model;
    return std::make_unique<DeviceModel>(std::move(model), device);
}

at::Device device_of(const Model& model) {
    const NamedTensors parameters = model.parameters();
    expect(!parameters.empty(), "a model has parameters");
    return parameters.front().tensor.device();
}

NamedTensors moved_to(at::Device device, NamedTensors tensors) {
    for (NamedTensor& named : tensors) named.tensor = named.tensor.to(device);
    return tensors;
}

}  // namespace lockstep
