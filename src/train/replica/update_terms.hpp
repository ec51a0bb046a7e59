// SPDX-License-Identifier: Apache-2.0
// What Adam's moments need in one step: Kingma and Ba, https://arxiv.org/abs/1412.6980.
#pragma once

#include "lockstep/train/optimizer.hpp"

#include "replica/update_launch.hpp"

#include <cmath>

namespace lockstep {

/// Updates that the moments of `piece` have taken with this one: t of the paper.
inline double moment_number(const ParameterPiece& piece, const UpdateStep& step) {
    return static_cast<double>(step.number - piece.missed);
}

/// 1 - beta1^t: the first moment is divided by this.
inline double first_correction(const OptimizerSettings& settings,
                               const ParameterPiece& piece,
                               const UpdateStep& step) {
    return 1 - std::pow(settings.beta1, moment_number(piece, step));
}

/// Factors of the moments, and of gradients.
inline UpdateTerms moment_terms(const OptimizerSettings& settings,
                                const ParameterPiece& piece,
                                const UpdateStep& step) {
    return {.scale = step.gradient_scale,
            .beta1 = static_cast<float>(settings.beta1),
            .beta2 = static_cast<float>(settings.beta2),
            .keep1 = static_cast<float>(1 - settings.beta1),
            .keep2 = static_cast<float>(1 - settings.beta2),
            .epsilon = static_cast<float>(settings.epsilon),
            .root2 = static_cast<float>(
                std::sqrt(1 - std::pow(settings.beta2, moment_number(piece, step))))};
}

/// All of `piece`; `first` and `second` are its first two state vectors, as far as there are any.
inline UpdateLaunch launch_of(UpdateKind kind,
                              const ParameterPiece& piece,
                              const UpdateStep& step,
                              const UpdateTerms& terms,
                              const float* rate = nullptr) {
    return {.kind = kind,
            .values = piece.values,
            .gradients = piece.gradients,
            .first = piece.state.empty() ? nullptr : piece.state[0],
            .second = piece.state.size() < 2 ? nullptr : piece.state[1],
            .count = static_cast<std::int64_t>(piece.count),
            .terms = terms,
            .decided = step.decided,
            .rate = rate,
            .mark = piece.mark};
}

}  // namespace lockstep
