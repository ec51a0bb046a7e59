// SPDX-License-Identifier: Apache-2.0
#include "replica/optimizer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "support/unit.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

std::vector<float> noise(std::size_t count, std::uint64_t seed) {
    CounterRandom random(Purpose::test, {seed});
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random.uniform() * 2 - 1);
    return values;
}

struct Trained {
    std::vector<float> values;
    std::vector<std::vector<float>> state;
    bool operator==(const Trained&) const = default;
};

struct TestTensor {
    std::size_t count = 0, dimensions = 2;
};

// A weight, its bias, and two more.
const std::vector<TestTensor> small_model = {{600, 2}, {20, 1}, {300, 4}, {80, 1}};

std::size_t elements(const std::vector<TestTensor>& tensors) {
    std::size_t count = 0;
    for (const TestTensor& tensor : tensors) count += tensor.count;
    return count;
}

// One after another in one vector that is cut before each element of `cuts`.
std::vector<ParameterPiece> pieces_of(const std::vector<TestTensor>& tensors,
                                      const std::vector<std::size_t>& cuts,
                                      Trained& trained,
                                      const std::vector<float>& gradients) {
    std::vector<ParameterPiece> pieces;
    std::size_t begin = 0, tensor_end = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        tensor_end += tensors[i].count;
        while (begin < tensor_end) {
            const auto cut = std::ranges::upper_bound(cuts, begin);
            const std::size_t end = cut == cuts.end() ? tensor_end : std::min(*cut, tensor_end);
            ParameterPiece piece{.tensor = i,
                                 .dimensions = tensors[i].dimensions,
                                 .count = end - begin,
                                 .values = trained.values.data() + begin,
                                 .gradients = gradients.data() + begin,
                                 .state = {}};
            for (auto& vector : trained.state) piece.state.push_back(vector.data() + begin);
            pieces.push_back(std::move(piece));
            begin = end;
        }
    }
    return pieces;
}

// Of all elements, on this rank alone.
void update_alone(const OptimizerSettings& optimizer,
                  std::span<const ParameterPiece> pieces,
                  std::size_t tensors,
                  const UpdateStep& step) {
    update_pieces(optimizer, {}, pieces, ParameterCopy::first, tensors, step);
}

// Five steps from weights around 0, as nets have them.
Trained train(const OptimizerSettings& settings,
              const std::vector<TestTensor>& tensors,
              const std::vector<std::size_t>& cuts = {}) {
    const std::size_t count = elements(tensors);
    Trained result{noise(count, 1), {}};
    result.state.assign(state_names(settings).size(), std::vector<float>(count, 0));
    for (std::int64_t step = 1; step <= 5; ++step) {
        const auto gradients = noise(count, static_cast<std::uint64_t>(step) + 10);
        update_alone(settings,
                     pieces_of(tensors, cuts, result, gradients),
                     tensors.size(),
                     {.number = step, .rate = 0.01, .gradient_scale = 0.75F});
    }
    return result;
}

OptimizerSettings settings_of(OptimizerKind kind, double weight_decay = 0.01) {
    return {.kind = kind, .weight_decay = weight_decay};
}

class EveryOptimizer : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds,
                         EveryOptimizer,
                         testing::Values(OptimizerKind::sgd,
                                         OptimizerKind::adam,
                                         OptimizerKind::adamw,
                                         OptimizerKind::lars,
                                         OptimizerKind::lamb));

TEST_P(EveryOptimizer, ScalesGradientsBeforeAnythingElse) {
    const auto update = [&](float gradient, float scale) {
        Trained trained{{-2}, {{0.5}, {0.25}}};
        const std::vector<float> gradients = {gradient};
        const auto pieces = pieces_of({{1, 2}}, {}, trained, gradients);
        update_alone(settings_of(GetParam(), 0.1), pieces, 1, {3, 0.1, scale});
        return trained;
    };
    EXPECT_EQ(update(4, 0.25F), update(1, 1));
    EXPECT_NE(update(4, 0.25F), update(4, 1));
}

TEST(RateFactor, MultipliesTheRateOfItsPieceAlone) {
    for (const OptimizerKind kind :
         {OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw}) {
        const auto update = [&](double rate, double factor) {
            Trained trained{{-2, -2}, {{0.5, 0.5}, {0.25, 0.25}}};
            const std::vector<float> gradients = {4, 4};
            auto pieces = pieces_of({{1, 2}, {1, 2}}, {}, trained, gradients);
            pieces[0].rate_factor = factor;
            update_alone(settings_of(kind, 0.1), pieces, 2, {3, rate, 1});
            return trained.values;
        };
        EXPECT_EQ(update(0.1, 0.25)[0], update(0.025, 1)[0]);
        EXPECT_EQ(update(0.1, 0.25)[1], update(0.1, 1)[1]);
        EXPECT_NE(update(0.1, 0.25)[0], update(0.1, 1)[0]);
        EXPECT_EQ(update(0.1, 0)[0], -2) << "a factor of 0 changes nothing, weight decay included";
    }
}

TEST(RateFactor, IsThatOfTheLastPatternThatMatches) {
    const std::vector<std::string> names{"fc1.weight", "fc1.bias", "fc2.weight"};
    const auto factors = [&](const std::string& list) {
        return rate_factors({.rate_factors = list}, names);
    };
    EXPECT_THAT(factors("fc1.*=0.1,*.bias=2"), ElementsAre(0.1, 2, 1));
    EXPECT_THAT(factors(""), ElementsAre(1, 1, 1));
    EXPECT_THAT(caught_text([&] { factors("fc3.*=0.1"); }),
                HasSubstr("E107: --lr-group 'fc3.*' has no effect\n  why: the model has no "
                          "parameter that learns of such a name: fc1.bias, fc1.weight, "
                          "fc2.weight\n  fix: drop it (--lr-group '' if a run's settings have "
                          "it), or give one of these names or a pattern for them"));
    for (const char* bad : {"fc1.*", "=0.1", "fc1.*=", "fc1.*=x", "fc1.*=-1", "fc1.*=inf", "a=nan"})
        EXPECT_EQ(caught_code([&] { factors(bad); }), "E103") << bad;
}

TEST_P(EveryOptimizer, GivesEqualBitsHoweverTheVectorIsCut) {
    OptimizerSettings settings = settings_of(GetParam());
    for (const bool nesterov : {false, true}) {
        settings.nesterov = nesterov;
        settings.average_decay = nesterov ? 0.9 : 0;
        const Trained whole = train(settings, small_model);
        EXPECT_EQ(whole, train(settings, small_model, {16, 160, 176, 992}));
        EXPECT_EQ(whole, train(settings, small_model, {1, 4, 7, 500, 605, 610, 999}));
    }
}

// Norms of lars and lamb are of whole tensors: one that is as large again changes no other.
TEST_P(EveryOptimizer, UpdatesEachTensorForItselfAndLeavesEmptyStripesAlone) {
    const Trained both = train(settings_of(GetParam()), {{100, 2}, {50, 2}});
    Trained alone = train(settings_of(GetParam()), {{100, 2}});
    EXPECT_TRUE(std::ranges::equal(std::span(both.values).first(100), alone.values));
    EXPECT_EQ(train(settings_of(GetParam()), {{0, 2}}).values.size(), 0U);
}

TEST_P(EveryOptimizer, KeepsAnAverageBesidesItsOwnBits) {
    OptimizerSettings settings = settings_of(GetParam());
    Trained bare = train(settings, small_model);
    settings.average_decay = 0.75;
    Trained averaged = train(settings, small_model);
    const std::vector<float> average = averaged.state.back();
    averaged.state.pop_back();
    EXPECT_EQ(averaged, bare);
    EXPECT_NE(average, bare.values);
}

TEST(Average, FollowsTheWeightsFromTheInitialOnes) {
    const OptimizerSettings optimizer{.kind = OptimizerKind::sgd, .average_decay = 0.75};
    Trained trained{{8}, {{0}, {8}}};
    const std::vector<float> gradients = {4};
    const auto pieces = pieces_of({{1, 1}}, {}, trained, gradients);
    double average = 8;
    for (std::int64_t step = 1; step <= 10; ++step) {
        update_alone(optimizer, pieces, 1, {step, 0.1});
        average = 0.75 * average + 0.25 * trained.values[0];
        EXPECT_NEAR(trained.state[1][0], average, 1e-5) << step;
    }
}

// The parts of the vector that weight decay moves.
std::vector<bool> decayed_tensors(const OptimizerSettings& settings) {
    OptimizerSettings without = settings;
    without.weight_decay = 0;
    const Trained one = train(settings, small_model), other = train(without, small_model);
    std::vector<bool> differ;
    std::size_t begin = 0;
    for (const TestTensor& tensor : small_model) {
        const auto part = [&](const Trained& all) {
            return std::span(all.values).subspan(begin, tensor.count);
        };
        differ.push_back(!std::ranges::equal(part(one), part(other)));
        begin += tensor.count;
    }
    return differ;
}

TEST_P(EveryOptimizer, DecaysBiasesWhereThePapersDo) {
    OptimizerSettings settings = settings_of(GetParam(), 0.1);
    const bool has_groups = GetParam() != OptimizerKind::sgd && GetParam() != OptimizerKind::adam;
    EXPECT_THAT(decayed_tensors(settings), ElementsAre(true, !has_groups, true, !has_groups));
    settings.decays_all = true;
    EXPECT_THAT(decayed_tensors(settings), ElementsAre(true, true, true, true));
}

// What a run of an earlier version was updated by, in its words.
void update_as_ever(const OptimizerSettings& settings,
                    std::vector<float>& p,
                    const std::vector<float>& g,
                    Trained& state,
                    const UpdateStep& step) {
    const bool coupled = settings.kind != OptimizerKind::adamw;
    const auto rate = static_cast<float>(step.rate);
    const auto momentum = static_cast<float>(settings.momentum);
    const auto decay = static_cast<float>(coupled ? settings.weight_decay : 0);
    const auto shrink = static_cast<float>(coupled ? 1 : 1 - step.rate * settings.weight_decay);
    const auto number = static_cast<double>(step.number);
    const double correction_1 = 1 - std::pow(settings.beta1, number);
    const auto root2 = static_cast<float>(std::sqrt(1 - std::pow(settings.beta2, number)));
    const auto beta1 = static_cast<float>(settings.beta1);
    const auto beta2 = static_cast<float>(settings.beta2);
    const auto keep1 = static_cast<float>(1 - settings.beta1);
    const auto keep2 = static_cast<float>(1 - settings.beta2);
    const auto step_size = static_cast<float>(step.rate / correction_1);
    const auto epsilon = static_cast<float>(settings.epsilon);
    for (std::size_t i = 0; i < p.size(); ++i) {
        const float gradient = g[i] * step.gradient_scale + decay * p[i];
        float& m = state.state[0][i];
        if (settings.kind == OptimizerKind::sgd) {
            m = momentum * m + gradient;
            p[i] -= rate * m;
            continue;
        }
        float& v = state.state[1][i];
        m = beta1 * m + keep1 * gradient;
        v = beta2 * v + keep2 * (gradient * gradient);
        const float scale = std::sqrt(v) / root2 + epsilon;
        p[i] = p[i] * shrink - step_size * (m / scale);
    }
}

RC_GTEST_PROP(Update, KeepsTheBitsOfRunsThatExist, ()) {
    OptimizerSettings settings;
    settings.kind =
        *rc::gen::element(OptimizerKind::sgd, OptimizerKind::adam, OptimizerKind::adamw);
    settings.weight_decay = *rc::gen::element(0.0, 0.01, 0.3);
    settings.momentum = *rc::gen::element(0.0, 0.9);
    const auto seed = *rc::gen::arbitrary<std::uint64_t>();
    const auto count = *rc::gen::inRange<std::size_t>(1, 200);
    const UpdateStep step{.number = *rc::gen::inRange<std::int64_t>(1, 5000),
                          .rate = *rc::gen::element(1e-3, 0.1),
                          .gradient_scale = *rc::gen::element(1.0F, 0.37F)};
    const auto gradients = noise(count, seed + 1);
    Trained expected{noise(count, seed), {noise(count, seed + 2), noise(count, seed + 3)}};
    for (float& v : expected.state[1]) v = std::abs(v);
    Trained found = expected;
    update_as_ever(settings, expected.values, gradients, expected, step);
    update_alone(settings, pieces_of({{count, 2}}, {}, found, gradients), 1, step);
    RC_ASSERT(found == expected);
}

double norm(const std::vector<double>& values) {
    double sum = 0;
    for (const double value : values) sum += value * value;
    return std::sqrt(sum);
}

// One tensor in plain doubles, as the papers write it. `rate_of` tells its own rate from norms.
struct InDoubles {
    std::vector<double> w, m, v;
    double rate = 0.01, decay = 0.01;

    explicit InDoubles(const std::vector<float>& values)
        : w(values.begin(), values.end()), m(w.size()), v(w.size()) {}

    void lars(const std::vector<double>& g, double trust) {
        const double own = trust * norm(w) / (norm(g) + decay * norm(w));
        for (std::size_t i = 0; i < w.size(); ++i) {
            m[i] = 0.9 * m[i] + rate * own * (g[i] + decay * w[i]);
            w[i] -= m[i];
        }
    }

    void lamb(const std::vector<double>& g, int step) {
        std::vector<double> r(w.size());
        for (std::size_t i = 0; i < w.size(); ++i) {
            m[i] = 0.9 * m[i] + 0.1 * g[i];
            v[i] = 0.999 * v[i] + 0.001 * g[i] * g[i];
            r[i] = m[i] / (1 - std::pow(0.9, step)) /
                       (std::sqrt(v[i] / (1 - std::pow(0.999, step))) + 1e-8) +
                   decay * w[i];
        }
        const double own = norm(w) / norm(r);
        for (std::size_t i = 0; i < w.size(); ++i) w[i] -= rate * own * r[i];
    }
};

class LayerOptimizer : public testing::TestWithParam<OptimizerKind> {};
INSTANTIATE_TEST_SUITE_P(Kinds,
                         LayerOptimizer,
                         testing::Values(OptimizerKind::lars, OptimizerKind::lamb));

TEST_P(LayerOptimizer, FollowsThePaper) {
    OptimizerSettings settings = settings_of(GetParam());
    settings.trust = 0.02;
    const Trained trained = train(settings, {{3000, 2}}, {999});
    InDoubles expected(noise(3000, 1));
    for (int step = 1; step <= 5; ++step) {
        const auto gradients = noise(3000, static_cast<std::uint64_t>(step) + 10);
        std::vector<double> g(gradients.begin(), gradients.end());
        for (double& value : g) value *= 0.75;
        if (GetParam() == OptimizerKind::lars) expected.lars(g, 0.02);
        if (GetParam() == OptimizerKind::lamb) expected.lamb(g, step);
    }
    for (std::size_t i = 0; i < 3000; ++i) EXPECT_NEAR(trained.values[i], expected.w[i], 1e-6) << i;
}

TEST_P(LayerOptimizer, SparesBiasesARateOfTheirOwn) {
    OptimizerSettings settings = settings_of(GetParam(), 0);
    const Trained bias = train(settings, {{100, 1}}), weight = train(settings, {{100, 2}});
    EXPECT_NE(bias.values, weight.values);
    settings.decays_all = true;
    EXPECT_EQ(train(settings, {{100, 1}}), weight);
}

TEST_P(LayerOptimizer, MovesWeightsThatAreAllZero) {
    const OptimizerSettings optimizer = settings_of(GetParam());
    Trained trained{{0, 0}, {{0, 0}, {0, 0}}};
    const std::vector<float> gradients = {1, -1};
    update_alone(optimizer, pieces_of({{2, 2}}, {}, trained, gradients), 1, {1, 0.1});
    EXPECT_LT(trained.values[0], -0.01F);
    EXPECT_GT(trained.values[1], 0.01F);
}

// Nodes hold equal copies, whose norms must not be counted twice.
TEST_P(LayerOptimizer, CountsOneCopyOnly) {
    Trained first{noise(50, 1), {noise(50, 2), std::vector<float>(50, 0.5F)}}, other = first;
    const auto gradients = noise(50, 4);
    const auto update = [&](Trained& trained, ParameterCopy copy) {
        update_pieces(settings_of(GetParam()),
                      {},
                      pieces_of({{50, 2}}, {}, trained, gradients),
                      copy,
                      1,
                      {1, 0.1});
    };
    update(first, ParameterCopy::first);
    update(other, ParameterCopy::other);
    EXPECT_NE(first.values, other.values) << "norms of another copy are those that others found";
    EXPECT_EQ(first.state[1], other.state[1]);
}

TEST(GroupText, SaysWhatIsDecayedAndNoEnumeratorIsRefused) {
    const std::vector<std::size_t> dimensions = {2, 1, 4, 1, 1};
    const auto text = [&](OptimizerKind kind, double decay) {
        return group_text(settings_of(kind, decay), dimensions);
    };
    EXPECT_EQ(text(OptimizerKind::adamw, 0.01),
              "weight decay 0.01 for 2 tensors, none for 3 biases and norms");
    EXPECT_EQ(text(OptimizerKind::lamb, 0.5),
              "weight decay 0.5 and rates of their own for 2 tensors, none for 3 biases and norms");
    EXPECT_EQ(text(OptimizerKind::lars, 0),
              "rates of their own for 2 tensors, none for 3 biases and norms");
    EXPECT_EQ(text(OptimizerKind::sgd, 0.01), "weight decay 0.01 for 5 tensors");
    EXPECT_EQ(text(OptimizerKind::adamw, 0), "");
    const OptimizerSettings none{.kind = static_cast<OptimizerKind>(99)};
    EXPECT_EQ(caught_code([&] { check_optimizer(none); }), "E103");
}

}  // namespace
}  // namespace lockstep
