// SPDX-License-Identifier: Apache-2.0
// Optimizers on pieces of tensors: element-wise, and sums over a tensor are exact, so any cut of
// the vector over ranks gives equal bits.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"

#include "replica/update_loops.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What one update is told besides vectors.
struct UpdateStep {
    /// Counted from 1 over the updates that the state has taken: a step that was skipped or rolled
    /// back is none of them.
    std::int64_t number = 1;
    double rate = 0;           ///< learning rate
    float gradient_scale = 1;  ///< every gradient is multiplied by this first
    /// In memory of the loops; where there is one, it has the scale, and whether anything changes.
    const UpdateDecision* decided = nullptr;
};

/// Tensors that an optimizer treats alike.
enum class ParameterGroup {
    decayed,  ///< by weight decay; lars and lamb have a rate for each
    spared,   ///< biases and norms: neither
};

/// The group of a tensor with so many dimensions. Spared are those of one, as in the code of the
/// papers on LARS and LAMB, by adamw, lars and lamb, unless `settings` say that all are decayed.
ParameterGroup parameter_group(const OptimizerSettings& settings, std::size_t dimensions);

/// A run of one tensor's elements and what belongs to them. Borrows everything.
struct ParameterPiece {
    std::size_t tensor = 0;            ///< index of the tensor among all
    std::size_t dimensions = 1;        ///< of the tensor
    double rate_factor = 1;            ///< of the learning rate; not with rates of its own
    std::size_t count = 0;             ///< elements
    float* values = nullptr;           ///< to be updated
    const float* gradients = nullptr;  ///< as long
    std::vector<float*> state;         ///< state[k] is the k-th state vector, as long
    /// Updates of the others that left the tensor alone, as its gradient was none.
    std::int64_t missed = 0;
    /// Null, or -0 there, in memory of the loops: the tensor has no gradient in this step.
    const float* mark = nullptr;
};

/// Exact sums of squares over one tensor, in memory of the loops.
struct TensorSums {
    std::int64_t* weights = nullptr;  ///< before the update
    std::int64_t* updates = nullptr;  ///< of gradients (lars, not yet scaled) or directions (lamb)
};

/// The state vector that is a moving average of the weights; the last one, where there is one.
inline constexpr const char* average_state = "average";

/// Updates parameters from gradients, by loops that may run on a GPU, whose memory pieces then are.
/// Where tensors have rates of their own every piece goes through prepare() first, and the sums of
/// all pieces of a tensor, on all ranks, make the rate that update() is told.
class Optimizer {
  public:
    virtual ~Optimizer() = default;

    /// Names of the state vectors, zero at the start: {"momentum"}, {"m", "v"}.
    virtual std::vector<std::string> state_names() const = 0;

    /// How tensors' own rates are found, if they have any.
    virtual OwnRateRule own_rate() const;

    /// Adds what `piece` contributes to the sums of its tensor. Changes its state only.
    virtual void prepare(const ParameterPiece& piece,
                         const UpdateStep& step,
                         const TensorSums& sums,
                         UpdateLoops& loops) const;

    /// One step of `piece`. `rate`: its tensor's own, in memory of the loops, or null.
    virtual void update(const ParameterPiece& piece,
                        const float* rate,
                        const UpdateStep& step,
                        UpdateLoops& loops) const = 0;
};

/// "sgd": v = mu v + (g + wd p); p -= rate v (Sutskever et al., ICML'13, as PyTorch writes it), or
/// with Nesterov's look-ahead p -= rate (g + wd p + mu v).
/// "adam": Kingma and Ba, https://arxiv.org/abs/1412.6980; "adamw": decoupled weight decay,
/// Loshchilov and Hutter, https://arxiv.org/abs/1711.05101.
/// "lars": You et al., https://arxiv.org/abs/1708.03888, algorithm 1; "lamb": You et al.,
/// https://arxiv.org/abs/1904.00962, algorithm 2 with phi(x) = x. A tensor whose weights or
/// updates are all zero has a rate of its own of 1. With `average_decay` any of them also keeps the
/// average d a + (1 - d) p of the weights p after each step, which begins as the initial weights.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings);

/// Which of several equal copies of the parameters a rank's pieces belong to.
enum class ParameterCopy { first, other };

/// Collective where tensors have rates of their own: one message for the sums of all `tensors`. The
/// first copies of all `ranks` together have each element once. `pieces` are memory of who runs
/// `loops`.
void update_pieces(const Optimizer& optimizer,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops = host_loops());

/// "weight decay 0.01 for 12 tensors, none for 20 biases and norms": what `settings` do to a model
/// whose tensors have so many dimensions; "" where there is nothing to say.
std::string group_text(const OptimizerSettings& settings, std::span<const std::size_t> dimensions);

/// By how much the learning rate of each tensor is multiplied. Errors: E103 for what is not
/// GLOB=FACTOR, or a factor that is not finite or below 0; E107 for a pattern of --lr-group that
/// matches none of `names`.
std::vector<double> rate_factors(const OptimizerSettings& settings,
                                 const std::vector<std::string>& names);

}  // namespace lockstep
