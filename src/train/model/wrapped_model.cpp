// SPDX-License-Identifier: Apache-2.0
// LibTorch's autocast casts the inputs of operators, by its own lists. Casts of weights are kept
// for the rest of a forward pass, so that each is made once. They must not outlive it, because the
// next pass may have other weights at the same address.
//
// Tested: train/model/precision_test.cpp, e2e/numbers_test.cpp (verify over numbers of ranks).
#include "model/model.hpp"

#include <utility>

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double timing_noise = 1.1;

// A model that computes by another one, whose tensors it has.
class WrappedModel : public Model {
  public:
    explicit WrappedModel(std::unique_ptr<Model> model) : model_(std::move(model)) {}

    NamedTensors forward(const NamedTensors& inputs) override { return model_->forward(inputs); }
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
};

/// Acts like torch.autocast(device, dtype) during its lifetime.
class AutocastScope {
  public:
    AutocastScope(at::DeviceType device, at::ScalarType type)
        : device_(device),
          was_on_(at::autocast::is_autocast_enabled(device)),
          type_before_(at::autocast::get_autocast_dtype(device)) {
        at::autocast::set_autocast_enabled(device_, true);
        at::autocast::set_autocast_dtype(device_, type);
        at::autocast::increment_nesting();
    }
    ~AutocastScope() {
        if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
        at::autocast::set_autocast_enabled(device_, was_on_);
        at::autocast::set_autocast_dtype(device_, type_before_);
    }
    AutocastScope& operator=(AutocastScope&&) = delete;

  private:
    at::DeviceType device_;
    bool was_on_;
    at::ScalarType type_before_;
};

class AutocastModel : public WrappedModel {
  public:
    AutocastModel(std::unique_ptr<Model> model, at::ScalarType type, ReducedOutputs outputs)
        : WrappedModel(std::move(model)),
          device_(device_of(*this).type()),
          type_(type),
          outputs_(outputs) {}

    NamedTensors forward(const NamedTensors& inputs) override {
        const AutocastScope scope(device_, type_);
        NamedTensors outputs = WrappedModel::forward(inputs);
        for (auto& [name, tensor] : outputs)
            if (!stays(tensor)) tensor = tensor.to(at::kFloat);
        return outputs;
    }

  private:
    bool stays(const at::Tensor& output) const {
        return outputs_ == ReducedOutputs::as_is_to_learn && output.requires_grad() &&
               output.scalar_type() == type_;
    }

    at::DeviceType device_;
    at::ScalarType type_;
    ReducedOutputs outputs_;
};

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

std::unique_ptr<Model> with_precision(std::unique_ptr<Model> model,
                                      Precision precision,
                                      ReducedOutputs outputs) {
    if (!has_16_bits(precision)) return model;
    return std::make_unique<AutocastModel>(
        std::move(model), precision == Precision::bf16 ? at::kBFloat16 : at::kHalf, outputs);
}

std::string slower_text(const std::string& precision, double full_s, double reduced_s) {
    if (reduced_s <= timing_noise * full_s) return "";
    return fmt::format(
        "--precision {} is {:.1f} times as slow as fp32 here: {:.3g} ms a micro-batch against "
        "{:.3g} ms",
        precision,
        reduced_s / full_s,
        1e3 * reduced_s,
        1e3 * full_s);
}

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
