// SPDX-License-Identifier: Apache-2.0
/// @file
/// Element-wise optimizers on flat stripes: no reduction, so any cut of the vector gives equal
/// bits.
#pragma once

#include "lockstep/train/settings.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What one update is told besides vectors.
struct UpdateStep {
    std::int64_t number = 1;   ///< counted from 1
    double rate = 0;           ///< learning rate
    float gradient_scale = 1;  ///< every gradient is multiplied by this first
};

/// Updates parameters from gradients. `state[k]` is the k-th state vector of the same length.
class Optimizer {
  public:
    virtual ~Optimizer() = default;

    /// Names of the state vectors, zero at the start: {"momentum"}, {"m", "v"}.
    virtual std::vector<std::string> state_names() const = 0;

    /// One step over `count` floats.
    virtual void update(float* parameters,
                        const float* gradients,
                        std::span<float* const> state,
                        std::size_t count,
                        const UpdateStep& step) const = 0;
};

/// "sgd": v = mu v + (g + wd p); p -= rate v (Sutskever et al., ICML'13, as PyTorch writes it).
/// "adam": Kingma and Ba, https://arxiv.org/abs/1412.6980; "adamw": decoupled weight decay,
/// Loshchilov and Hutter, https://arxiv.org/abs/1711.05101.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings);

/// Learning rate of `step` (from 0) of `total_steps`: linear warm-up, then constant or half a
/// cosine (Loshchilov and Hutter, https://arxiv.org/abs/1608.03983, without restarts).
double learning_rate(const OptimizerSettings& optimizer,
                     const ScheduleSettings& schedule,
                     std::int64_t step,
                     std::int64_t total_steps);

}  // namespace lockstep
