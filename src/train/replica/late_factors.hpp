// SPDX-License-Identifier: Apache-2.0
// What an update takes from the sums of its own step, and so is known when the update has long been
// asked for: whether it happens, its factor of gradients, and tensors' own rates. One source for
// the host and for a kernel, as update_launch.hpp is: from equal sums both make equal bits.
#pragma once

#include "lockstep/comm/exact_words.hpp"
#include "lockstep/core/host_device.hpp"

#include <cmath>
#include <cstdint>

namespace lockstep {

/// About one update, the same on all ranks.
struct UpdateDecision {
    double norm = 0;               ///< of the gradient; 0 where nobody asks, or for a skipped step
    float scale = 1;               ///< of gradients
    std::int32_t is_withheld = 0;  ///< 1: something is not finite, and nothing may change
};

/// How it is found.
struct UpdateRule {
    double loss_scale = 1;       ///< sums are so many times the gradient
    double clip_norm = 0;        ///< the norm is scaled down to this; 0: never
    bool measures_norm = false;  ///< also without clipping
    bool skips_nonfinite = false;

    bool needs_norm() const { return measures_norm || clip_norm > 0; }
    bool needs_sums() const { return needs_norm() || skips_nonfinite; }
};

/// The exact sums are of all ranks.
struct DecisionLaunch {
    UpdateRule rule;
    const std::int64_t* squares = nullptr;  ///< of gradients, where their norm is needed
    const std::int64_t* others = nullptr;   ///< what else has to be finite
    UpdateDecision* out = nullptr;
};

/// How a tensor's own rate follows from the norms of its weights and of its updates.
struct OwnRateRule {
    enum class Kind : std::int32_t { none, lars, lamb };
    Kind kind = Kind::none;
    double trust = 0, weight_decay = 0;  ///< of lars
};

/// Of `tensors` tensors, each of which has two exact sums: of its weights' and its updates'
/// squares. A tensor without any has a rate of its own of 1.
struct OwnRatesLaunch {
    OwnRateRule rule;
    const std::int64_t* sums = nullptr;
    std::int64_t tensors = 0;
    double rate = 0;  ///< learning rate
    float scale = 1;  ///< of gradients, unless it was decided
    const UpdateDecision* decided = nullptr;
    float* out = nullptr;  ///< by tensor: its own rate by the learning rate
};

/// Entry points of liblockstep_cuda.so, by these names in C: as exact::squares_entry_point.
inline constexpr const char* decide_entry_point = "lockstep_cuda_decide";
inline constexpr const char* own_rates_entry_point = "lockstep_cuda_own_rates";
/// As their types.
using DecideEntryPoint = int (*)(const DecisionLaunch* launch, void* stream);
using OwnRatesEntryPoint = int (*)(const OwnRatesLaunch* launch, void* stream);

namespace update {

/// Pascanu et al., https://arxiv.org/abs/1211.5063, with PyTorch's guard against a norm of zero.
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
    // Of gradients as they were summed.
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
