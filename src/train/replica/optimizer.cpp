// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/optimizer.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/core/error.hpp"

#include "replica/averaged_optimizer.hpp"
#include "replica/layer_optimizers.hpp"
#include "replica/moments.hpp"
#include "replica/widest_vectors.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

struct SgdTerms {
    float momentum, decay, rate, scale;
};

LOCKSTEP_WIDEST_VECTORS
void sgd_step(float* __restrict values,
              const float* __restrict gradients,
              float* __restrict velocity,
              std::size_t count,
              const SgdTerms terms) {
    for (std::size_t i = 0; i < count; ++i) {
        const float gradient = gradients[i] * terms.scale + terms.decay * values[i];
        velocity[i] = terms.momentum * velocity[i] + gradient;
        values[i] -= terms.rate * velocity[i];
    }
}

LOCKSTEP_WIDEST_VECTORS
void nesterov_step(float* __restrict values,
                   const float* __restrict gradients,
                   float* __restrict velocity,
                   std::size_t count,
                   const SgdTerms terms) {
    for (std::size_t i = 0; i < count; ++i) {
        const float gradient = gradients[i] * terms.scale + terms.decay * values[i];
        velocity[i] = terms.momentum * velocity[i] + gradient;
        values[i] -= terms.rate * (gradient + terms.momentum * velocity[i]);
    }
}

class Sgd : public Optimizer {
  public:
    explicit Sgd(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"momentum"}; }

    void update(const ParameterPiece& piece,
                const TensorNorms&,
                const UpdateStep& step) const override {
        const auto one_step = settings_.nesterov ? nesterov_step : sgd_step;
        one_step(piece.values,
                 piece.gradients,
                 piece.state[0],
                 piece.count,
                 {.momentum = static_cast<float>(settings_.momentum),
                  .decay = static_cast<float>(settings_.weight_decay),
                  .rate = static_cast<float>(step.rate),
                  .scale = step.gradient_scale});
    }

  private:
    OptimizerSettings settings_;
};

struct AdamTerms {
    float rate, scale;
    float into_gradient;  ///< of the values: coupled weight decay
    float shrink;         ///< the values: decoupled weight decay
};

inline void adam_element(float& value,
                         float gradient_sum,
                         float& m,
                         float& v,
                         const Moments& moments,
                         const AdamTerms& terms) {
    const float gradient = gradient_sum * terms.scale + terms.into_gradient * value;
    const float first = moments.beta1 * m + moments.keep1 * gradient;
    const float second = moments.beta2 * v + moments.keep2 * (gradient * gradient);
    const float scale = std::sqrt(second) / moments.root2 + moments.epsilon;
    m = first;
    v = second;
    value = value * terms.shrink - terms.rate * (first / scale);
}

// Four streams of memory are what a step costs; asked for half a KiB ahead they come a tenth sooner
// (2 KiB was better on an older processor, and is worse than nothing on an EPYC with AVX-512).
LOCKSTEP_WIDEST_VECTORS
void adam_step(float* __restrict values,
               const float* __restrict gradients,
               float* __restrict m,
               float* __restrict v,
               std::size_t count,
               const Moments moments,
               const AdamTerms terms) {
    constexpr std::size_t ahead = 512 / sizeof(float);
    std::size_t at = 0;
    for (; at + line_floats <= count; at += line_floats) {
        for (const float* stream : {values, m, v}) __builtin_prefetch(stream + at + ahead, 1);
        __builtin_prefetch(gradients + at + ahead, 0);
        for (std::size_t i = at; i < at + line_floats; ++i)
            adam_element(values[i], gradients[i], m[i], v[i], moments, terms);
    }
    for (; at < count; ++at) adam_element(values[at], gradients[at], m[at], v[at], moments, terms);
}

class Adam : public Optimizer {
  public:
    explicit Adam(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }

    void update(const ParameterPiece& piece,
                const TensorNorms&,
                const UpdateStep& step) const override {
        const bool is_decayed =
            parameter_group(settings_, piece.dimensions) == ParameterGroup::decayed;
        const double decay = is_decayed ? settings_.weight_decay : 0;
        const bool is_coupled = settings_.kind == OptimizerKind::adam;
        const Moments moments(settings_, step);
        adam_step(piece.values,
                  piece.gradients,
                  piece.state[0],
                  piece.state[1],
                  piece.count,
                  moments,
                  {.rate = static_cast<float>(step.rate / moments.correction1),
                   .scale = step.gradient_scale,
                   .into_gradient = static_cast<float>(is_coupled ? decay : 0),
                   .shrink = static_cast<float>(is_coupled ? 1 : 1 - step.rate * decay)});
    }

  private:
    OptimizerSettings settings_;
};

// What becomes of the tensors that are not spared: "weight decay 0.01 and rates of their own".
std::string treatment(const OptimizerSettings& settings) {
    const bool has_rates =
        settings.kind == OptimizerKind::lars || settings.kind == OptimizerKind::lamb;
    const std::string rates = has_rates ? "rates of their own" : "";
    if (settings.weight_decay == 0) return rates;
    return fmt::format(
        "weight decay {}{}{}", settings.weight_decay, has_rates ? " and " : "", rates);
}

// Without an average.
std::unique_ptr<Optimizer> make_bare(const OptimizerSettings& settings) {
    switch (settings.kind) {
        case OptimizerKind::sgd:
            return std::make_unique<Sgd>(settings);
        case OptimizerKind::adam:
        case OptimizerKind::adamw:
            return std::make_unique<Adam>(settings);
        case OptimizerKind::lars:
            return make_lars(settings);
        case OptimizerKind::lamb:
            return make_lamb(settings);
    }
    throw Error("E103",
                fmt::format("no optimizer has the number {}", static_cast<int>(settings.kind)),
                "OptimizerKind has adam, adamw, lamb, lars and sgd",
                "use one of its enumerators");
}

}  // namespace

ParameterGroup parameter_group(const OptimizerSettings& settings, std::size_t dimensions) {
    const bool has_groups =
        settings.kind != OptimizerKind::sgd && settings.kind != OptimizerKind::adam;
    return has_groups && !settings.decays_all && dimensions <= 1 ? ParameterGroup::spared
                                                                 : ParameterGroup::decayed;
}

std::string group_text(const OptimizerSettings& settings, std::span<const std::size_t> dimensions) {
    const std::string what = treatment(settings);
    if (what.empty()) return "";
    const auto spared = std::ranges::count_if(dimensions, [&](std::size_t count) {
        return parameter_group(settings, count) == ParameterGroup::spared;
    });
    const auto decayed = std::ssize(dimensions) - spared;
    return fmt::format("{} for {} tensors{}",
                       what,
                       decayed,
                       spared > 0 ? fmt::format(", none for {} biases and norms", spared) : "");
}

void Optimizer::prepare(const ParameterPiece&, const UpdateStep&, TensorSums&) const {}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings) {
    auto bare = make_bare(settings);
    if (settings.average_decay == 0) return bare;
    return make_averaged(std::move(bare), settings.average_decay);
}

}  // namespace lockstep
