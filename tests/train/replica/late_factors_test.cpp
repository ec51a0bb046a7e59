// SPDX-License-Identifier: Apache-2.0
// What an update takes from sums of its own step, in the words in which the host had it before.
#include "replica/late_factors.hpp"

#include "lockstep/comm/exact_sum.hpp"
#include "lockstep/core/random.hpp"

#include "replica/update_loops.hpp"

#include <algorithm>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Of sums that are `squares` and `others`.
UpdateDecision decide(const UpdateRule& rule,
                      const std::vector<float>& squares,
                      const std::vector<float>& others = {}) {
    std::int64_t* const sums = host_loops().sums(2);
    host_loops().add_squares(sums, squares.data(), squares.size());
    host_loops().add_nonfinite(sums + exact::words, others.data(), others.size());
    return *host_loops().decide(
        {.rule = rule, .squares = sums, .others = sums + exact::words, .out = nullptr});
}

TEST(Decision, HasTheNormAndTheScaleOfTheGradient) {
    for (std::uint64_t number = 0; number < 1000; ++number) {
        CounterRandom random(Purpose::test, {number});
        std::vector<float> values(1 + random.below(50));
        for (float& value : values) value = static_cast<float>(random.uniform() * 20 - 10);
        const double factor = std::ldexp(1, static_cast<int>(random.below(20)));
        const double limit = random.below(3) == 0 ? 0 : random.uniform() * 100 / factor;
        ExactSum sum;
        sum.add_squares(values);
        const double norm = std::sqrt(sum.value()) / factor;
        const float clip = limit > 0 ? static_cast<float>(std::min(1.0, limit / (norm + 1e-6))) : 1;
        const auto found = decide({.loss_scale = factor, .clip_norm = limit}, values);
        EXPECT_EQ(found.norm, norm);
        EXPECT_EQ(found.scale, clip / static_cast<float>(factor));
        EXPECT_EQ(found.is_withheld, 0);
    }
}

TEST(Decision, WithholdsWhatIsNotFiniteWhereThatIsAskedFor) {
    const UpdateRule skips{.clip_norm = 1, .skips_nonfinite = true};
    EXPECT_EQ(decide(skips, {1, 2}, {3}).is_withheld, 0);
    for (const float value : {infinity, -infinity, std::nanf("")}) {
        EXPECT_EQ(decide(skips, {1, value}, {3}).is_withheld, 1) << value;
        EXPECT_EQ(decide(skips, {1, 2}, {3, value}).is_withheld, 1) << value;
        EXPECT_EQ(decide(skips, {1, value}, {3}).norm, 0) << value;
        EXPECT_EQ(decide({.clip_norm = 1}, {1, value}, {3}).is_withheld, 0) << value;
    }
}

// The rate of a tensor with such weights and updates.
float rate_of(const OwnRateRule& rule,
              const std::vector<float>& weights,
              const std::vector<float>& updates,
              const UpdateDecision* decided = nullptr) {
    std::int64_t* const sums = host_loops().sums(2);
    host_loops().add_squares(sums, weights.data(), weights.size());
    host_loops().add_squares(sums + exact::words, updates.data(), updates.size());
    return *host_loops().own_rates({.rule = rule,
                                    .sums = sums,
                                    .tensors = 1,
                                    .rate = 0.3,
                                    .scale = 0.5F,
                                    .decided = decided,
                                    .out = nullptr});
}

TEST(OwnRates, FollowThePapers) {
    const OwnRateRule lars{OwnRateRule::Kind::lars, 0.02, 0.1};
    const OwnRateRule lamb{OwnRateRule::Kind::lamb};
    const UpdateDecision decided{.scale = 0.25F};
    EXPECT_EQ(rate_of(lars, {3, 4}, {6, 8}),
              static_cast<float>(0.3 * (0.02 * 5 / (10 * 0.5 + 0.1 * 5))));
    EXPECT_EQ(rate_of(lars, {3, 4}, {6, 8}, &decided),
              static_cast<float>(0.3 * (0.02 * 5 / (10 * 0.25 + 0.1 * 5))));
    for (const auto* late : {static_cast<const UpdateDecision*>(nullptr), &decided})
        EXPECT_EQ(rate_of(lamb, {3, 4}, {6, 8}, late), static_cast<float>(0.3 * (5.0 / 10)));
}

TEST(OwnRates, AreTheLearningRateWithoutANorm) {
    for (const auto kind : {OwnRateRule::Kind::lars, OwnRateRule::Kind::lamb}) {
        EXPECT_EQ(rate_of({kind, 0.02, 0.1}, {}, {}), 0.3F);
        EXPECT_EQ(rate_of({kind, 0.02, 0.1}, {0, 0}, {1}), 0.3F);
        EXPECT_EQ(rate_of({kind, 0.02, 0.1}, {1}, {0}), 0.3F);
    }
}

}  // namespace
}  // namespace lockstep
