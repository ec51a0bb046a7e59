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
    NormUse norm_use() const override { return NormUse::of_tensors; }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep&,
                 TensorSums& sums,
                 UpdateLoops& loops) const override {
        if (is_spared(settings_, piece)) return;
        loops.add_squares(sums.weights, piece.values, piece.count);
        loops.add_squares(sums.updates, piece.gradients, piece.count);
    }

    void update(const ParameterPiece& piece,
                const TensorNorms& norms,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        const double decay = is_spared(settings_, piece) ? 0 : settings_.weight_decay;
        const double rate = is_spared(settings_, piece) ? 1 : own_rate(norms, step.gradient_scale);
        loops.run(launch_of(UpdateKind::lars,
                            piece,
                            {.rate = static_cast<float>(step.rate * rate),
                             .scale = step.gradient_scale,
                             .momentum = static_cast<float>(settings_.momentum),
                             .decay = static_cast<float>(decay)}));
    }

  private:
    double own_rate(const TensorNorms& norms, double gradient_scale) const {
        const double gradient = norms.updates * gradient_scale;
        if (norms.weights == 0 || gradient == 0) return 1;
        return settings_.trust * norms.weights /
               (gradient + settings_.weight_decay * norms.weights);
    }

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
    NormUse norm_use() const override { return NormUse::of_tensors; }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 TensorSums& sums,
                 UpdateLoops& loops) const override {
        const std::span<float> directions = loops.room();
        for (std::size_t at = 0; at < piece.count; at += directions.size()) {
            const ParameterPiece part =
                part_of(piece, at, std::min(directions.size(), piece.count - at));
            UpdateLaunch launch = launch_of(UpdateKind::lamb_moments, part, terms_of(part, step));
            loops.run(launch);
            if (is_spared(settings_, piece)) continue;
            launch.kind = UpdateKind::lamb_directions;
            launch.gradients = part.values;
            launch.values = directions.data();
            loops.run(launch);
            loops.add_squares(sums.updates, directions.data(), part.count);
            loops.add_squares(sums.weights, part.values, part.count);
        }
    }

    void update(const ParameterPiece& piece,
                const TensorNorms& norms,
                const UpdateStep& step,
                UpdateLoops& loops) const override {
        const bool has_own = !is_spared(settings_, piece) && norms.weights > 0 && norms.updates > 0;
        const double own_rate = has_own ? norms.weights / norms.updates : 1;
        UpdateTerms terms = terms_of(piece, step);
        terms.rate = static_cast<float>(step.rate * own_rate);
        loops.run(launch_of(UpdateKind::lamb, piece, terms));
    }

  private:
    UpdateTerms terms_of(const ParameterPiece& piece, const UpdateStep& step) const {
        UpdateTerms terms = moment_terms(settings_, step);
        terms.of_m = static_cast<float>(1 / first_correction(settings_, step));
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
