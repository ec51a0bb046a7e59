// SPDX-License-Identifier: Apache-2.0
#include "model/device_model.hpp"

#include "lockstep/core/error.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <torch/types.h>

namespace lockstep {
namespace {

class DeviceModel : public WrappedModel {
  public:
    DeviceModel(std::unique_ptr<Model> model, at::Device device)
        : WrappedModel(std::move(model)), device_(device) {
        const at::NoGradGuard no_gradients;
        for (const NamedTensors& tensors : {parameters(), buffers(), frozen()})
            for (const NamedTensor& named : tensors)
                named.tensor.set_data(named.tensor.to(device_));
    }

    NamedTensors forward(const NamedTensors& inputs) override {
        return WrappedModel::forward(moved_to(device_, inputs));
    }

  private:
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
