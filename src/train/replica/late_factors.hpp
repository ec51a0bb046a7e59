// SPDX-License-Identifier: Apache-2.0
// The parts of an update that depend on sums of its own step, and so are known only after it was
// enqueued: whether it happens, its gradient factor, and tensors' own rates. It is one source for
// host and kernel, as update_launch.hpp is: equal sums give equal bits on both.
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

}  // namespace update
}  // namespace lockstep
