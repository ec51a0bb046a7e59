// SPDX-License-Identifier: Apache-2.0
// An optimizer's loop over a range of floats, as plain data and as an operation on each element. It
// is one source for the host's loops and for the kernel. Nothing is contracted (-ffp-contract=off,
// nvcc --fmad=false), and roots and quotients are rounded correctly: both give the same bits.
// Parts of an update depend on sums of its own step, and so are known only after it was enqueued:
// whether it happens, its gradient factor, and tensors' own rates.
#pragma once

#include "lockstep/comm/exact_words.hpp"
#include "lockstep/core/host_device.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {

/// The decision on one update, the same on all ranks.
struct UpdateDecision {
    double norm = 0;  ///< norm of the gradient; 0 if it is not needed, or for a skipped step
    float scale = 1;  ///< factor of gradients
    std::int32_t is_withheld = 0;  ///< 1: something is not finite, and no value may change
};

/// The rule of the decision.
struct UpdateRule {
    double loss_scale = 1;       ///< sums are the gradient times this
    double clip_norm = 0;        ///< largest norm of the gradient; 0: no limit
    bool measures_norm = false;  ///< also without clipping
    bool skips_nonfinite = false;

    bool needs_norm() const { return measures_norm || clip_norm > 0; }
    bool needs_sums() const { return needs_norm() || skips_nonfinite; }
};

/// The arguments of a decision. The exact sums are over all ranks.
struct DecisionLaunch {
    UpdateRule rule;
    const std::int64_t* squares = nullptr;  ///< sum of squared gradients, if their norm is needed
    const std::int64_t* others = nullptr;   ///< other numbers that must be finite
    UpdateDecision* out = nullptr;
};

/// The dependence of a tensor's own rate on the norms of its weights and of its updates.
struct OwnRateRule {
    enum class Kind : std::int32_t { none, lars, lamb };
    Kind kind = Kind::none;
    double trust = 0, weight_decay = 0;  ///< for lars
};

/// Own rates of `tensors` tensors, each with two exact sums: of its weights' and its updates'
/// squares. A tensor without these has an own rate of 1.
struct OwnRatesLaunch {
    OwnRateRule rule;
    const std::int64_t* sums = nullptr;
    std::int64_t tensors = 0;
    double rate = 0;  ///< learning rate
    float scale = 1;  ///< factor of gradients, unless there is a decision
    const UpdateDecision* decided = nullptr;
    float* out = nullptr;  ///< by tensor: its own rate times the learning rate
};

/// Names of C entry points in liblockstep_cuda.so, with the rules of exact::squares_entry_point.
inline constexpr const char* decide_entry_point = "lockstep_cuda_decide";
inline constexpr const char* own_rates_entry_point = "lockstep_cuda_own_rates";
/// The types of the entry points.
using DecideEntryPoint = int (*)(const DecisionLaunch* launch, void* stream);
using OwnRatesEntryPoint = int (*)(const OwnRatesLaunch* launch, void* stream);

/// The kind of loop.
enum class UpdateKind : std::int32_t {
    sgd,
    nesterov,
    adam,
    lars,
    lamb_moments,
    lamb_directions,  ///< into `values`, for the weights in `gradients`
    lamb,
    average,   ///< `first` follows `values`
    quotient,  ///< values = gradients / divisor
};

/// Factors of one step. Each loop uses some.
struct UpdateTerms {
    float rate = 0;
    float scale = 1;     ///< factor of gradients
    float momentum = 0;  ///< sgd, nesterov and lars
    float decay = 0;     ///< weight decay as a part of the gradient
    float shrink = 1;    ///< factor of the values: decoupled weight decay
    float beta1 = 0, beta2 = 0;
    float keep1 = 1, keep2 = 1;  ///< 1 - beta
    float epsilon = 0;
    float of_m = 1;     ///< factor of lamb's first moment
    float root2 = 1;    ///< divisor of the second moment's root
    float keep = 0;     ///< for an average: 1 - its decay
    float divisor = 1;  ///< for a quotient
};

/// Updates values[i], with first[i] and second[i], by gradients[i] for i in [0, count), unless the
/// update is withheld. Pointers are in the memory of the executing device. The arrays do not
/// overlap, but `mark` may be one of the gradients.
struct UpdateLaunch {
    UpdateKind kind = UpdateKind::sgd;
    float* values = nullptr;
    const float* gradients = nullptr;
    float* first = nullptr;   ///< momentum, m or average
    float* second = nullptr;  ///< v
    std::int64_t count = 0;
    UpdateTerms terms;
    const UpdateDecision* decided =
        nullptr;                  ///< null: `terms` have the scale, and the update happens
    const float* rate = nullptr;  ///< null: `terms` have it
    const float* mark = nullptr;  ///< null, or the update is withheld if is_no_gradient(*mark)
};

/// The argument of the kernel: several launches at once, because a model has many small tensors.
struct UpdateBatch {
    static constexpr int most = 24;  ///< a kernel's arguments have at most 4 KiB
    UpdateLaunch launches[most];
    std::int64_t blocks_before[most + 1] = {};  ///< in the grid, by launch, then of all
    int count = 0;

    bool is_full() const { return count == most; }
    void add(const UpdateLaunch& launch) {
        const std::int64_t groups = (launch.count + widest_floats - 1) / widest_floats;
        launches[count] = launch;
        blocks_before[count + 1] = blocks_before[count] + blocks_for(groups);
        ++count;
    }
    std::int64_t blocks() const { return blocks_before[count]; }
};
static_assert(sizeof(UpdateBatch) <= 4096);

/// Name and type of the C entry point in liblockstep_cuda.so, with the rules of
/// exact::squares_entry_point. The batch has at least one launch.
inline constexpr const char* update_entry_point = "lockstep_cuda_update";
using UpdateEntryPoint = int (*)(const UpdateBatch* batch, void* stream);

namespace update {

/// Source: Pascanu et al., https://arxiv.org/abs/1211.5063, with PyTorch's guard against a norm of
/// zero.
LOCKSTEP_HOST_DEVICE inline float clip_scale(double norm, double limit) {
    if (limit <= 0) return 1;
    const double ratio = limit / (norm + 1e-6);
    return static_cast<float>(ratio < 1 ? ratio : 1);
}

LOCKSTEP_HOST_DEVICE inline float gradient_scale(const UpdateRule& rule, double norm) {
    return clip_scale(norm, rule.clip_norm) / static_cast<float>(rule.loss_scale);
}

LOCKSTEP_HOST_DEVICE inline void decide(const DecisionLaunch& launch) {
    const bool is_finite = exact::is_finite(launch.squares) && exact::is_finite(launch.others);
    const bool is_withheld = launch.rule.skips_nonfinite && !is_finite;
    const double root = std::sqrt(exact::rounded(launch.squares));
    const double norm = is_withheld ? 0 : root / launch.rule.loss_scale;
    *launch.out = {norm, gradient_scale(launch.rule, norm), is_withheld ? 1 : 0};
}

LOCKSTEP_HOST_DEVICE inline double own_rate(const OwnRateRule& rule,
                                            double weights,
                                            double updates) {
    if (rule.kind == OwnRateRule::Kind::lamb)
        return weights > 0 && updates > 0 ? weights / updates : 1;
    if (weights == 0 || updates == 0) return 1;
    return rule.trust * weights / (updates + rule.weight_decay * weights);
}

LOCKSTEP_HOST_DEVICE inline void find_own_rate(const OwnRatesLaunch& launch, std::int64_t tensor) {
    const std::int64_t* const sums = launch.sums + 2 * tensor * exact::words;
    const double weights = std::sqrt(exact::rounded(sums));
    double updates = std::sqrt(exact::rounded(sums + exact::words));
    // lars takes the norm of gradients before scaling.
    if (launch.rule.kind == OwnRateRule::Kind::lars)
        updates *=
            static_cast<double>(launch.decided == nullptr ? launch.scale : launch.decided->scale);
    launch.out[tensor] = static_cast<float>(launch.rate * own_rate(launch.rule, weights, updates));
}

/// A grid of `blocks` x `threads` strides over the tensors.
LOCKSTEP_HOST_DEVICE inline void own_rates_thread(const OwnRatesLaunch& launch,
                                                  std::int64_t block,
                                                  int thread,
                                                  std::int64_t blocks,
                                                  int threads) {
    for (std::int64_t i = block * threads + thread; i < launch.tensors; i += blocks * threads)
        find_own_rate(launch, i);
}

LOCKSTEP_HOST_DEVICE inline void sgd(float& value, float sum, float& velocity, UpdateTerms t) {
    const float gradient = sum * t.scale + t.decay * value;
    velocity = t.momentum * velocity + gradient;
    value -= t.rate * velocity;
}

LOCKSTEP_HOST_DEVICE inline void nesterov(float& value, float sum, float& velocity, UpdateTerms t) {
    const float gradient = sum * t.scale + t.decay * value;
    velocity = t.momentum * velocity + gradient;
    value -= t.rate * (gradient + t.momentum * velocity);
}

LOCKSTEP_HOST_DEVICE inline void adam(float& value, float sum, float& m, float& v, UpdateTerms t) {
    const float gradient = sum * t.scale + t.decay * value;
    const float first = t.beta1 * m + t.keep1 * gradient;
    const float second = t.beta2 * v + t.keep2 * (gradient * gradient);
    const float scale = std::sqrt(second) / t.root2 + t.epsilon;
    m = first;
    v = second;
    value = value * t.shrink - t.rate * (first / scale);
}

LOCKSTEP_HOST_DEVICE inline void lars(float& value, float sum, float& velocity, UpdateTerms t) {
    const float direction = sum * t.scale + t.decay * value;
    velocity = t.momentum * velocity + t.rate * direction;
    value -= velocity;
}

LOCKSTEP_HOST_DEVICE inline void lamb_moments(float sum, float& m, float& v, UpdateTerms t) {
    const float gradient = sum * t.scale;
    m = t.beta1 * m + t.keep1 * gradient;
    v = t.beta2 * v + t.keep2 * (gradient * gradient);
}

LOCKSTEP_HOST_DEVICE inline float lamb_direction(float m, float v, float value, UpdateTerms t) {
    return t.of_m * m / (std::sqrt(v) / t.root2 + t.epsilon) + t.decay * value;
}

LOCKSTEP_HOST_DEVICE inline void lamb_directions(
    float& direction, float value, float m, float v, UpdateTerms t) {
    direction = lamb_direction(m, v, value, t);
}

LOCKSTEP_HOST_DEVICE inline void lamb(float& value, float m, float v, UpdateTerms t) {
    value -= t.rate * lamb_direction(m, v, value, t);
}

LOCKSTEP_HOST_DEVICE inline void quotient(float& value, float sum, UpdateTerms t) {
    value = sum / t.divisor;
}

LOCKSTEP_HOST_DEVICE inline void average(float value, float& average, UpdateTerms t) {
    average += t.keep * (value - average);
}

/// Returns true if no leaf has added to this sum of gradients. Leaves that do not reach a parameter
/// give -0, leaves that reach it never do, and a sum is -0 only if all leaves gave -0.
LOCKSTEP_HOST_DEVICE inline bool is_no_gradient(float sum) {
    return sum == 0 && std::signbit(sum);
}

LOCKSTEP_HOST_DEVICE inline bool is_withheld(const UpdateLaunch& l) {
    return (l.decided != nullptr && l.decided->is_withheld != 0) ||
           (l.mark != nullptr && is_no_gradient(*l.mark));
}

/// Returns the terms with the late factors.
LOCKSTEP_HOST_DEVICE inline UpdateTerms terms_of(const UpdateLaunch& l) {
    UpdateTerms terms = l.terms;
    if (l.decided != nullptr) terms.scale = l.decided->scale;
    if (l.rate != nullptr) terms.rate = *l.rate;
    return terms;
}

template <int width>
LOCKSTEP_HOST_DEVICE inline void store(const Floats<width>& floats, float* to) {
    *reinterpret_cast<Floats<width>*>(to) = floats;
}
template <int width>
LOCKSTEP_HOST_DEVICE inline void store(const Floats<width>&, const float*) {}

/// Applies `formula` to elements [i, i + width) of `arrays`. It changes those that are not const.
/// All loads come first, so the arrays' accesses are under way together. The compiler drops the
/// load of an array that the formula only writes.
template <int width, auto formula, class... Float>
LOCKSTEP_HOST_DEVICE inline void apply(std::int64_t i, const UpdateTerms& t, Float*... arrays) {
    const auto compute = [&](auto... floats) {
        for (int k = 0; k < width; ++k) formula(floats.at[k]..., t);
        (store(floats, arrays + i), ...);
    };
    compute(load_floats<width>(arrays + i)...);
}

/// Elements [i, i + width).
template <int width>
LOCKSTEP_HOST_DEVICE inline void elements(const UpdateLaunch& l,
                                          std::int64_t i,
                                          const UpdateTerms& t) {
    const float *const values = l.values, *const m = l.first, *const v = l.second;
    switch (l.kind) {
        case UpdateKind::sgd:
            return apply<width, sgd>(i, t, l.values, l.gradients, l.first);
        case UpdateKind::nesterov:
            return apply<width, nesterov>(i, t, l.values, l.gradients, l.first);
        case UpdateKind::adam:
            return apply<width, adam>(i, t, l.values, l.gradients, l.first, l.second);
        case UpdateKind::lars:
            return apply<width, lars>(i, t, l.values, l.gradients, l.first);
        case UpdateKind::lamb_moments:
            return apply<width, lamb_moments>(i, t, l.gradients, l.first, l.second);
        case UpdateKind::lamb_directions:
            return apply<width, lamb_directions>(i, t, l.values, l.gradients, m, v);
        case UpdateKind::lamb:
            return apply<width, lamb>(i, t, l.values, m, v);
        case UpdateKind::average:
            return apply<width, average>(i, t, values, l.first);
        case UpdateKind::quotient:
            return apply<width, quotient>(i, t, l.values, l.gradients);
    }
}

/// A grid of `blocks` x `threads` strides over the elements. The launch is a copy: nvcc then knows
/// that no store changes its pointers, and joins all stores.
LOCKSTEP_HOST_DEVICE inline void thread(
    UpdateLaunch launch, std::int64_t block, int thread, std::int64_t blocks, int threads) {
    if (is_withheld(launch)) return;
    const UpdateTerms terms = terms_of(launch);
    for_own_floats(launch.count,
                   are_aligned(launch.values, launch.gradients, launch.first, launch.second),
                   block * threads + thread,
                   blocks * threads,
                   [&]<int width>(std::int64_t i) { elements<width>(launch, i, terms); });
}

/// Thread `thread` of `threads` in block `block` of the batch's grid.
LOCKSTEP_HOST_DEVICE inline void batch_thread(const UpdateBatch& batch,
                                              std::int64_t block,
                                              int thread_of_block,
                                              int threads) {
    int which = 0;
    while (block >= batch.blocks_before[which + 1]) ++which;
    const std::int64_t first = batch.blocks_before[which];
    thread(batch.launches[which],
           block - first,
           thread_of_block,
           batch.blocks_before[which + 1] - first,
           threads);
}

}  // namespace update
}  // namespace lockstep
