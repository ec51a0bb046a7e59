// SPDX-License-Identifier: Apache-2.0
// Optimizers on pieces of tensors. They are element-wise, and sums over a tensor are exact, so any
// cut of the vector over ranks gives equal bits.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/plan/settings.hpp"

#include "replica/update_launch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// The loops of an optimizer, on the host or on a GPU.
/// All work is done in the order of calls; on a GPU the host does not wait for it. Sums, decisions
/// and rates are in the memory of the executing device.
class UpdateLoops {
  public:
    virtual ~UpdateLoops() = default;

    /// No launch uses what another one writes.
    virtual void run(std::span<const UpdateLaunch> launches) = 0;

    /// Returns `count` exact sums (exact_words.hpp) that are zero. Earlier sums become invalid.
    virtual std::int64_t* sums(std::size_t count) = 0;

    /// Adds the square of each of `count` floats to `sum`.
    virtual void add_squares(std::int64_t* sum, const float* values, std::size_t count) = 0;

    /// Makes `sum` show whether all values are finite. Its value is otherwise unspecified.
    virtual void add_nonfinite(std::int64_t* sum, const float* values, std::size_t count) = 0;

    /// Collective. Replaces each of `count` sums by that over all `ranks`, in one message.
    virtual void sum_over(const Communicator& ranks, std::int64_t* sums, std::size_t count) = 0;

    /// Makes the decision; `out` is the loops' own: the result is valid until the next call.
    virtual const UpdateDecision* decide(DecisionLaunch launch) = 0;
    virtual const float* own_rates(OwnRatesLaunch launch) = 0;

    /// Returns room for temporary floats; larger needs are processed in parts.
    virtual std::span<float> room() = 0;
};

/// Returns the loops of this thread.
UpdateLoops& host_loops();

/// The arguments of one update besides vectors.
struct UpdateStep {
    /// Number of the update, from 1, that the state takes; steps that were skipped or rolled back
    /// do not count.
    std::int64_t number = 1;
    double rate = 0;           ///< learning rate
    float gradient_scale = 1;  ///< first factor of every gradient
    /// In memory of the loops; if not null, it has the scale, and whether anything changes.
    const UpdateDecision* decided = nullptr;
};

/// A range of one tensor's elements and the vectors that belong to it. Borrows everything.
struct ParameterPiece {
    std::size_t tensor = 0;            ///< index of the tensor among all
    std::size_t dimensions = 1;        ///< dimensions of the tensor
    double rate_factor = 1;            ///< factor of the learning rate; not with own rates
    std::size_t count = 0;             ///< elements
    float* values = nullptr;           ///< values to update
    const float* gradients = nullptr;  ///< as many as `values`
    std::vector<float*> state{};       ///< state[k] is the k-th state vector, as long
    /// Number of updates that left the tensor unchanged, because it had no gradient.
    std::int64_t missed = 0;
    /// In memory of the loops. If it points to -0, the tensor has no gradient in this step; may be
    /// null.
    const float* mark = nullptr;
};

/// The state vector with the moving average of the weights; it is the last one, if it exists.
inline constexpr const char* average_state = "average";

/// Checks the rule. Errors: E103 for a kind that is no enumerator.
void check_optimizer(const OptimizerSettings& settings);

/// Returns the names of the state vectors, which start at zero: {"momentum"}, {"m", "v"}, and the
/// average if it is kept.
std::vector<std::string> state_names(const OptimizerSettings& settings);

/// The copy of the parameters to which a rank's pieces belong, if there are several equal ones.
enum class ParameterCopy { first, other };

/// Updates parameters from gradients by the rule of `settings`:
/// "sgd": v = mu v + (g + wd p); p -= rate v (Sutskever et al., ICML'13, as PyTorch writes it), or
/// with Nesterov's look-ahead p -= rate (g + wd p + mu v).
/// "adam": Kingma and Ba, https://arxiv.org/abs/1412.6980; "adamw": decoupled weight decay,
/// Loshchilov and Hutter, https://arxiv.org/abs/1711.05101.
/// "lars": You et al., https://arxiv.org/abs/1708.03888, algorithm 1; "lamb": You et al.,
/// https://arxiv.org/abs/1904.00962, algorithm 2 with phi(x) = x. A tensor whose weights or
/// updates are all zero has a rate of its own of 1. adamw, lars and lamb spare tensors of one
/// dimension, which are biases and norms, unless `settings` decay all. Those have neither weight
/// decay nor a rate of their own, as in the code of the papers on LARS and LAMB. With
/// `average_decay` any of them also keeps the average d a + (1 - d) p of the weights p after each
/// step, which begins as the initial weights.
///
/// Collective if tensors have own rates: one message for the sums of all `tensors`. The first
/// copies of all `ranks` together have each element once. `pieces` are in memory of `loops`.
void update_pieces(const OptimizerSettings& settings,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops = host_loops());

/// Returns "weight decay 0.01 for 12 tensors, none for 20 biases and norms": the effect of
/// `settings` on a model with tensors of these dimensions; "" if there is none to report.
std::string group_text(const OptimizerSettings& settings, std::span<const std::size_t> dimensions);

/// Returns the factor of the learning rate for each tensor. Errors: E103 for text that is not
/// GLOB=FACTOR, or a factor that is not finite or below 0; E107 for a pattern of --lr-group that
/// matches none of `names`.
std::vector<double> rate_factors(const OptimizerSettings& settings,
                                 const std::vector<std::string>& names);

}  // namespace lockstep
