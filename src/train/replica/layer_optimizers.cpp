// SPDX-License-Identifier: Apache-2.0
#include "replica/layer_optimizers.hpp"

#include "replica/update_loops.hpp"
#include "replica/update_terms.hpp"

#include <algorithm>
#include <span>

namespace lockstep {
namespace {

bool is_spared(const OptimizerSettings& settings, const ParameterPiece& piece) {
    return parameter_group(settings, piece.dimensions) == ParameterGroup::spared;
}

class Lars : public Optimizer {
  public:
    explicit Lars(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"momentum"}; }
    OwnRateRule own_rate() const override {
        return {OwnRateRule::Kind::lars, settings_.trust, settings_.weight_decay};
    }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep&,
                 const TensorSums& sums,
                 UpdateLoops& loops) const override {
        if (is_spared(settings_, piece)) return;
        loops.add_squares(sums.weights, piece.values, piece.count);
        loops.add_squares(sums.updates, piece.gradients, piece.count);
    }

    void update(const ParameterPiece& piece,
                const float* rate,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        const double decay = is_spared(settings_, piece) ? 0 : settings_.weight_decay;
        loops.run(launch_of(UpdateKind::lars,
                            piece,
                            step,
                            {.scale = step.gradient_scale,
                             .momentum = static_cast<float>(settings_.momentum),
                             .decay = static_cast<float>(decay)},
                            rate));
    }

  private:
    OptimizerSettings settings_;
};

// Elements [at, at + count) of `whole`.
ParameterPiece part_of(const ParameterPiece& whole, std::size_t at, std::size_t count) {
    ParameterPiece part = whole;
    part.count = count;
    part.values += at;
    part.gradients += at;
    for (float*& state : part.state) state += at;
    return part;
}

// m / (1 - beta1^t) by sqrt(v / (1 - beta2^t)) + epsilon, and weight decay, are directions:
// computed twice, once for their norm and once to go there, which is cheaper than a vector to keep
// them in.
class Lamb : public Optimizer {
  public:
    explicit Lamb(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }
    OwnRateRule own_rate() const override { return {.kind = OwnRateRule::Kind::lamb}; }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 const TensorSums& sums,
                 UpdateLoops& loops) const override {
        const std::span<float> directions = loops.room();
        for (std::size_t at = 0; at < piece.count; at += directions.size()) {
            const ParameterPiece part =
                part_of(piece, at, std::min(directions.size(), piece.count - at));
            UpdateLaunch launch =
                launch_of(UpdateKind::lamb_moments, part, step, terms_of(part, step));
            loops.run(launch);
            if (is_spared(settings_, piece)) continue;
            launch.kind = UpdateKind::lamb_directions;
            launch.gradients = part.values;
            launch.values = directions.data();
            launch.mark = nullptr;  // what the sums get is a number in any case
            loops.run(launch);
            loops.add_squares(sums.updates, directions.data(), part.count);
            loops.add_squares(sums.weights, part.values, part.count);
        }
    }

    void update(const ParameterPiece& piece,
                const float* rate,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        loops.run(launch_of(UpdateKind::lamb, piece, step, terms_of(piece, step), rate));
    }

  private:
    UpdateTerms terms_of(const ParameterPiece& piece, const UpdateStep& step) const {
        UpdateTerms terms = moment_terms(settings_, piece, step);
        terms.of_m = static_cast<float>(1 / first_correction(settings_, piece, step));
        terms.decay = static_cast<float>(is_spared(settings_, piece) ? 0 : settings_.weight_decay);
        return terms;
    }

    OptimizerSettings settings_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(const OptimizerSettings& settings) {
    return std::make_unique<Lars>(settings);
}

std::unique_ptr<Optimizer> make_lamb(const OptimizerSettings& settings) {
    return std::make_unique<Lamb>(settings);
}

}  // namespace lockstep
