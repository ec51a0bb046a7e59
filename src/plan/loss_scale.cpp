// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include <limits>

namespace lockstep {
namespace {

// The constants of torch.amp.GradScaler.
constexpr double growth = 2, backoff = 0.5;
constexpr std::int64_t steps_to_grow = 2000;

constexpr double least_factor = 0x1p-14;

}  // namespace

// Follows at::_amp_update_scale_, which torch.amp.GradScaler calls.
LossScale next_scale(const LossScale& scale, bool overflowed) {
    if (overflowed) return {scale.factor * backoff, 0};
    if (scale.good_steps + 1 < steps_to_grow) return {scale.factor, scale.good_steps + 1};
    const double grown = scale.factor * growth;
    return {grown <= std::numeric_limits<float>::max() ? grown : scale.factor, 0};
}

bool is_spent(const LossScale& scale) {
    return scale.factor < least_factor;
}

}  // namespace lockstep
