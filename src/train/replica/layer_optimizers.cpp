// SPDX-License-Identifier: Apache-2.0
#include "replica/layer_optimizers.hpp"

#include "replica/moments.hpp"
#include "replica/widest_vectors.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace lockstep {
namespace {

bool is_spared(const OptimizerSettings& settings, const ParameterPiece& piece) {
    return parameter_group(settings, piece.dimensions) == ParameterGroup::spared;
}

struct LarsTerms {
    float momentum, decay, rate, scale;
};

LOCKSTEP_WIDEST_VECTORS
void lars_step(float* __restrict values,
               const float* __restrict gradients,
               float* __restrict velocity,
               std::size_t count,
               const LarsTerms terms) {
    for (std::size_t i = 0; i < count; ++i) {
        const float direction = gradients[i] * terms.scale + terms.decay * values[i];
        velocity[i] = terms.momentum * velocity[i] + terms.rate * direction;
        values[i] -= velocity[i];
    }
}

class Lars : public Optimizer {
  public:
    explicit Lars(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"momentum"}; }
    NormUse norm_use() const override { return NormUse::of_tensors; }

    void prepare(const ParameterPiece& piece, const UpdateStep&, TensorSums& sums) const override {
        if (is_spared(settings_, piece)) return;
        sums.weights.add_squares({piece.values, piece.count});
        sums.updates.add_squares({piece.gradients, piece.count});
    }

    void update(const ParameterPiece& piece,
                const TensorNorms& norms,
                const UpdateStep& step) const override {
        const double decay = is_spared(settings_, piece) ? 0 : settings_.weight_decay;
        const double rate = is_spared(settings_, piece) ? 1 : own_rate(norms, step.gradient_scale);
        lars_step(piece.values,
                  piece.gradients,
                  piece.state[0],
                  piece.count,
                  {.momentum = static_cast<float>(settings_.momentum),
                   .decay = static_cast<float>(decay),
                   .rate = static_cast<float>(step.rate * rate),
                   .scale = step.gradient_scale});
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

// m / (1 - beta1^t) by sqrt(v / (1 - beta2^t)) + epsilon, and weight decay.
struct LambTerms {
    float of_m, root2, epsilon, decay;

    float direction(float m, float v, float value) const {
        return of_m * m / (std::sqrt(v) / root2 + epsilon) + decay * value;
    }
};

LOCKSTEP_WIDEST_VECTORS
void lamb_moments(const float* __restrict gradients,
                  float* __restrict m,
                  float* __restrict v,
                  std::size_t count,
                  float scale,
                  const Moments& given) {
    const Moments moments = given;
    for (std::size_t i = 0; i < count; ++i) {
        const float gradient = gradients[i] * scale;
        m[i] = moments.beta1 * m[i] + moments.keep1 * gradient;
        v[i] = moments.beta2 * v[i] + moments.keep2 * (gradient * gradient);
    }
}

LOCKSTEP_WIDEST_VECTORS
void lamb_directions(const float* __restrict values,
                     const float* __restrict m,
                     const float* __restrict v,
                     float* __restrict directions,
                     std::size_t count,
                     const LambTerms terms) {
    for (std::size_t i = 0; i < count; ++i) directions[i] = terms.direction(m[i], v[i], values[i]);
}

LOCKSTEP_WIDEST_VECTORS
void lamb_step(float* __restrict values,
               const float* __restrict m,
               const float* __restrict v,
               std::size_t count,
               float rate,
               const LambTerms terms) {
    for (std::size_t i = 0; i < count; ++i)
        values[i] -= rate * terms.direction(m[i], v[i], values[i]);
}

// Directions are computed twice, once for their norm and once to go there: that is cheaper than a
// vector to keep them in.
class Lamb : public Optimizer {
  public:
    explicit Lamb(const OptimizerSettings& settings) : settings_(settings) {}

    std::vector<std::string> state_names() const override { return {"m", "v"}; }
    NormUse norm_use() const override { return NormUse::of_tensors; }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 TensorSums& sums) const override {
        const Moments moments(settings_, step);
        const LambTerms terms = terms_of(piece, moments);
        const bool has_norms = !is_spared(settings_, piece);
        std::array<float, 1024> directions;  // one block of an exact sum
        for (std::size_t at = 0; at < piece.count; at += directions.size()) {
            const std::size_t count = std::min(directions.size(), piece.count - at);
            float* m = piece.state[0] + at;
            float* v = piece.state[1] + at;
            lamb_moments(piece.gradients + at, m, v, count, step.gradient_scale, moments);
            if (!has_norms) continue;
            lamb_directions(piece.values + at, m, v, directions.data(), count, terms);
            sums.updates.add_squares(std::span(directions).first(count));
            sums.weights.add_squares({piece.values + at, count});
        }
    }

    void update(const ParameterPiece& piece,
                const TensorNorms& norms,
                const UpdateStep& step) const override {
        const bool has_own = !is_spared(settings_, piece) && norms.weights > 0 && norms.updates > 0;
        const double own_rate = has_own ? norms.weights / norms.updates : 1;
        lamb_step(piece.values,
                  piece.state[0],
                  piece.state[1],
                  piece.count,
                  static_cast<float>(step.rate * own_rate),
                  terms_of(piece, Moments(settings_, step)));
    }

  private:
    LambTerms terms_of(const ParameterPiece& piece, const Moments& moments) const {
        return {
            .of_m = static_cast<float>(1 / moments.correction1),
            .root2 = moments.root2,
            .epsilon = moments.epsilon,
            .decay = static_cast<float>(is_spared(settings_, piece) ? 0 : settings_.weight_decay)};
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
