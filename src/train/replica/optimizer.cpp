// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/optimizer.hpp"

#include "lockstep/core/error.hpp"

#include "replica/averaged_optimizer.hpp"
#include "replica/layer_optimizers.hpp"
#include "replica/update_loops.hpp"
#include "replica/update_terms.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

class Sgd : public Optimizer {
  public:
    explicit Sgd(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"momentum"}; }

    void update(const ParameterPiece& piece,
                const float*,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        loops.run(launch_of(settings_.nesterov ? UpdateKind::nesterov : UpdateKind::sgd,
                            piece,
                            step,
                            {.rate = static_cast<float>(step.rate),
                             .scale = step.gradient_scale,
                             .momentum = static_cast<float>(settings_.momentum),
                             .decay = static_cast<float>(settings_.weight_decay)}));
    }

  private:
    OptimizerSettings settings_;
};

class Adam : public Optimizer {
  public:
    explicit Adam(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }

    void update(const ParameterPiece& piece,
                const float*,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        const bool is_decayed =
            parameter_group(settings_, piece.dimensions) == ParameterGroup::decayed;
        const double decay = is_decayed ? settings_.weight_decay : 0;
        const bool is_coupled = settings_.kind == OptimizerKind::adam;
        UpdateTerms terms = moment_terms(settings_, piece, step);
        terms.rate = static_cast<float>(step.rate / first_correction(settings_, piece, step));
        terms.decay = static_cast<float>(is_coupled ? decay : 0);
        terms.shrink = static_cast<float>(is_coupled ? 1 : 1 - step.rate * decay);
        loops.run(launch_of(UpdateKind::adam, piece, step, terms));
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

OwnRateRule Optimizer::own_rate() const {
    return {};
}

void Optimizer::prepare(const ParameterPiece&,
                        const UpdateStep&,
                        const TensorSums&,
                        UpdateLoops&) const {}

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings) {
    auto bare = make_bare(settings);
    if (settings.average_decay == 0) return bare;
    return make_averaged(std::move(bare), settings.average_decay);
}

}  // namespace lockstep
