// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/optimizer.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace lockstep {
namespace {

class Sgd : public Optimizer {
  public:
    explicit Sgd(const OptimizerSettings& settings)
        : momentum_(static_cast<float>(settings.momentum)),
          decay_(static_cast<float>(settings.weight_decay)) {}

    std::vector<std::string> state_names() const override { return {"momentum"}; }

    void update(float* __restrict parameters,
                const float* __restrict gradients,
                std::span<float* const> state,
                std::size_t count,
                const UpdateStep& step) const override {
        float* __restrict velocity = state[0];
        const auto step_size = static_cast<float>(step.rate);
        const float scale = step.gradient_scale;
        for (std::size_t i = 0; i < count; ++i) {
            const float gradient = gradients[i] * scale + decay_ * parameters[i];
            velocity[i] = momentum_ * velocity[i] + gradient;
            parameters[i] -= step_size * velocity[i];
        }
    }

  private:
    float momentum_, decay_;
};

class Adam : public Optimizer {
  public:
    enum class Decay { coupled, decoupled };

    Adam(const OptimizerSettings& settings, Decay decay) : settings_(settings), decay_(decay) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }

    void update(float* __restrict parameters,
                const float* __restrict gradients,
                std::span<float* const> state,
                std::size_t count,
                const UpdateStep& step) const override {
        const auto number = static_cast<double>(step.number);
        const double correction_1 = 1 - std::pow(settings_.beta1, number);
        const double correction_2 = 1 - std::pow(settings_.beta2, number);
        const float gradient_scale = step.gradient_scale;
        const auto beta1 = static_cast<float>(settings_.beta1);
        const auto beta2 = static_cast<float>(settings_.beta2);
        const auto keep1 = static_cast<float>(1 - settings_.beta1);
        const auto keep2 = static_cast<float>(1 - settings_.beta2);
        const auto step_size = static_cast<float>(step.rate / correction_1);
        const auto root2 = static_cast<float>(std::sqrt(correction_2));
        const auto epsilon = static_cast<float>(settings_.epsilon);
        const bool coupled = decay_ == Decay::coupled;
        const auto into_gradient = static_cast<float>(coupled ? settings_.weight_decay : 0);
        const auto shrink =
            static_cast<float>(coupled ? 1 : 1 - step.rate * settings_.weight_decay);
        float* __restrict m = state[0];
        float* __restrict v = state[1];
        for (std::size_t i = 0; i < count; ++i) {
            const float gradient = gradients[i] * gradient_scale + into_gradient * parameters[i];
            m[i] = beta1 * m[i] + keep1 * gradient;
            v[i] = beta2 * v[i] + keep2 * (gradient * gradient);
            const float scale = std::sqrt(v[i]) / root2 + epsilon;
            parameters[i] = parameters[i] * shrink - step_size * (m[i] / scale);
        }
    }

  private:
    OptimizerSettings settings_;
    Decay decay_;
};

}  // namespace

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings) {
    switch (settings.kind) {
        case OptimizerKind::sgd:
            return std::make_unique<Sgd>(settings);
        case OptimizerKind::adamw:
            return std::make_unique<Adam>(settings, Adam::Decay::decoupled);
        case OptimizerKind::adam:
            return std::make_unique<Adam>(settings, Adam::Decay::coupled);
    }
    throw Error("E103",
                fmt::format("no optimizer has the number {}", static_cast<int>(settings.kind)),
                "OptimizerKind has adam, adamw and sgd",
                "use one of its enumerators");
}

double learning_rate(const OptimizerSettings& optimizer,
                     const ScheduleSettings& schedule,
                     std::int64_t step,
                     std::int64_t total_steps) {
    if (step < schedule.warmup_steps)
        return optimizer.learning_rate * static_cast<double>(step + 1) /
               static_cast<double>(schedule.warmup_steps);
    if (schedule.kind == ScheduleKind::constant) return optimizer.learning_rate;
    const auto length = std::max<std::int64_t>(1, total_steps - schedule.warmup_steps);
    const double done = std::min(
        1.0, static_cast<double>(step - schedule.warmup_steps) / static_cast<double>(length));
    return optimizer.learning_rate * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace lockstep
