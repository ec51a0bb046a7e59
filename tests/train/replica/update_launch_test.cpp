// SPDX-License-Identifier: Apache-2.0
// The kernel of updates, run on the host thread by thread: the bits of the host's own loops.
#include "replica/update_launch.hpp"

#include "lockstep/comm/exact_sum.hpp"
#include "lockstep/core/random.hpp"

#include "replica/optimizer.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// All threads of the grid, in an order that no GPU promises.
void run_as_kernel(std::span<const UpdateLaunch> launches) {
    UpdateBatch batch;
    for (const UpdateLaunch& launch : launches) batch.add(launch);
    for (std::int64_t block = batch.blocks(); block-- > 0;)
        for (int thread = threads_of_block; thread-- > 0;)
            update::batch_thread(batch, block, thread, threads_of_block);
}

/// All else is one source anyway.
class KernelLoops : public UpdateLoops {
  public:
    void run(std::span<const UpdateLaunch> launches) override { run_as_kernel(launches); }
    std::int64_t* sums(std::size_t count) override { return host_.sums(count); }
    void add_squares(std::int64_t* sum, const float* values, std::size_t count) override {
        host_.add_squares(sum, values, count);
    }
    void add_nonfinite(std::int64_t* sum, const float* values, std::size_t count) override {
        const exact::SquaresLaunch launch{
            .values = values, .count = static_cast<std::int64_t>(count), .words = sum};
        constexpr int threads = 7;  // each has floats to look at together, and others
        for (int thread = threads; thread-- > 0;)
            exact::nonfinite_thread(launch, 0, thread, 1, threads);
    }
    void sum_over(const Communicator& ranks, std::int64_t* sums, std::size_t count) override {
        host_.sum_over(ranks, sums, count);
    }
    const UpdateDecision* decide(DecisionLaunch launch) override { return host_.decide(launch); }
    const float* own_rates(OwnRatesLaunch launch) override { return host_.own_rates(launch); }
    std::span<float> room() override { return room_; }

  private:
    UpdateLoops& host_ = host_loops();
    std::array<float, 100> room_;
};

// Of all sizes of numbers, and now and then what is none.
float hard_float(CounterRandom& random) {
    if (random.below(500) == 0) return random.below(2) == 0 ? 0.0F : HUGE_VALF;
    return std::ldexp(static_cast<float>(random.uniform() * 2 - 1),
                      static_cast<int>(random.below(60)) - 40);
}

// The tensor's numbers begin up to three floats behind 16 bytes: in half of all cases in every
// vector at the same place, else anywhere in each.
struct Vectors {
    std::size_t count;
    std::vector<float> values, gradients, first, second, average;
    std::array<std::size_t, 5> skipped{};

    Vectors(CounterRandom& random, std::size_t tensor) : count(tensor) {
        for (auto* vector : {&values, &gradients, &first, &second, &average})
            for (std::size_t i = 0; i < count + 3; ++i) vector->push_back(hard_float(random));
        for (float& v : second) v = std::abs(v);
        skipped.fill(random.below(4));
        if (random.below(2) == 0)
            for (std::size_t& floats : skipped) floats = random.below(4);
    }

    // Of one tensor, which `cuts` cut.
    std::vector<ParameterPiece> pieces(const OptimizerSettings& optimizer,
                                       const std::vector<std::size_t>& cuts = {}) {
        const std::vector<std::string> states = state_names(optimizer);
        std::vector<ParameterPiece> all;
        for (std::size_t begin = 0, i = 0; i <= cuts.size(); ++i) {
            const std::size_t end = i < cuts.size() ? cuts[i] : count;
            ParameterPiece piece{.dimensions = 2,
                                 .count = end - begin,
                                 .values = values.data() + skipped[0] + begin,
                                 .gradients = gradients.data() + skipped[1] + begin,
                                 .state = {first.data() + skipped[2] + begin}};
            for (std::size_t k = 1; k < states.size(); ++k)
                piece.state.push_back((states[k] == average_state ? average.data() + skipped[3]
                                                                  : second.data() + skipped[4]) +
                                      begin);
            all.push_back(std::move(piece));
            begin = end;
        }
        return all;
    }

    bool has_bits_of(const Vectors& other) const {
        const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
            return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
        };
        return same(values, other.values) && same(first, other.first) &&
               same(second, other.second) && same(average, other.average);
    }
};

std::size_t floats_behind_16_bytes(const float* place) {
    return reinterpret_cast<std::uintptr_t>(place) % 16 / sizeof(float);
}

OptimizerSettings some_settings(CounterRandom& random) {
    OptimizerSettings settings;
    settings.kind = static_cast<OptimizerKind>(random.below(5));
    settings.nesterov = random.below(2) == 0;
    settings.momentum = random.below(3) == 0 ? 0 : random.uniform();
    settings.weight_decay = random.below(2) == 0 ? 0 : random.uniform() / 10;
    settings.average_decay = random.below(2) == 0 ? 0 : 0.9;
    return settings;
}

TEST(UpdateLaunch, HasOnAGpuTheBitsOfTheHostsLoops) {
    KernelLoops kernel;
    std::set<std::pair<std::size_t, std::size_t>> begins_and_ends;
    for (std::uint64_t number = 0; number < 10'000; ++number) {
        CounterRandom random(Purpose::test, {number});
        const OptimizerSettings optimizer = some_settings(random);
        Vectors host(random, 1 + random.below(3000));
        Vectors device = host;
        const UpdateStep step{.number = static_cast<std::int64_t>(1 + random.below(1000)),
                              .rate = random.uniform(),
                              .gradient_scale = static_cast<float>(random.uniform())};
        UpdateStep late = step;
        const UpdateDecision decided{.scale = step.gradient_scale};
        late.gradient_scale = 0;
        late.decided = &decided;
        std::vector<std::size_t> cuts(random.below(UpdateBatch::most));
        for (std::size_t& cut : cuts) cut = random.below(host.count + 1);
        std::ranges::sort(cuts);
        const auto on_host = host.pieces(optimizer);
        const auto on_device = device.pieces(optimizer, cuts);
        for (const ParameterPiece& piece : on_device)
            begins_and_ends.insert({floats_behind_16_bytes(piece.values), piece.count % 4});
        update_pieces(optimizer, {}, on_host, ParameterCopy::first, 1, step);
        update_pieces(optimizer, {}, on_device, ParameterCopy::first, 1, late, kernel);
        ASSERT_TRUE(host.has_bits_of(device)) << "case " << number;
    }
    EXPECT_EQ(begins_and_ends.size(), 16);
}

TEST(UpdateLaunch, ChangesNothingWhereItIsWithheld) {
    KernelLoops kernel;
    const UpdateDecision decided{.is_withheld = 1};
    for (std::uint64_t number = 0; number < 200; ++number) {
        CounterRandom random(Purpose::test, {number});
        const OptimizerSettings optimizer = some_settings(random);
        const Vectors before(random, 1 + random.below(300));
        for (UpdateLoops* const loops : {&host_loops(), static_cast<UpdateLoops*>(&kernel)}) {
            Vectors after = before;
            const auto pieces = after.pieces(optimizer);
            UpdateStep step{.number = 1, .rate = 0.1, .decided = &decided};
            update_pieces(optimizer, {}, pieces, ParameterCopy::first, 1, step, *loops);
            ASSERT_TRUE(after.has_bits_of(before)) << "case " << number;
            step.decided = nullptr;
            update_pieces(optimizer, {}, pieces, ParameterCopy::first, 1, step, *loops);
            ASSERT_FALSE(after.has_bits_of(before)) << "case " << number;
        }
    }
}

TEST(UpdateLaunch, FindsWhatIsNotFiniteWhereverItIs) {
    constexpr std::size_t count = 503;
    KernelLoops kernel;
    for (const float value : {HUGE_VALF, -HUGE_VALF, std::nanf(""), 3e38F, 1e-45F})
        for (std::size_t skipped = 0; skipped < 4; ++skipped)  // addresses of every kind
            for (std::size_t at = 0; at < count; ++at) {
                std::vector<float> values(skipped + count, -3e38F);
                values[skipped + at] = value;
                for (UpdateLoops* const loops :
                     {&host_loops(), static_cast<UpdateLoops*>(&kernel)}) {
                    std::int64_t* const sum = loops->sums(1);
                    loops->add_nonfinite(sum, values.data() + skipped, count);
                    ASSERT_EQ(exact::is_finite(sum), std::isfinite(value)) << value << " at " << at;
                }
            }
}

// Returns how often each of `count` floats is covered by `threads`; `wide` counts wide accesses.
std::vector<int> covered(std::int64_t count, bool is_aligned, int threads, int& wide) {
    std::vector<int> times(static_cast<std::size_t>(count));
    for (int thread = 0; thread < threads; ++thread)
        for_own_floats(count, is_aligned, thread, threads, [&]<int width>(std::int64_t begin) {
            wide += width == widest_floats ? 1 : 0;
            for (auto i = begin; i < begin + width; ++i) ++times.at(static_cast<std::size_t>(i));
        });
    return times;
}

TEST(UpdateLaunch, AccessesEachFloatOnceAndFourAtATimeWhereAligned) {
    for (std::int64_t count = 0; count < 100; ++count)
        for (const bool is_aligned : {false, true})
            for (int threads = 1; threads < 8; ++threads) {
                const std::vector<int> once(static_cast<std::size_t>(count), 1);
                int wide = 0;
                EXPECT_EQ(covered(count, is_aligned, threads, wide), once);
                EXPECT_EQ(wide, is_aligned ? count / 4 : 0);
            }
    alignas(16) const std::array<float, 8> floats{};
    const float* const no_floats = nullptr;
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(are_aligned(floats.data() + i), i % 4 == 0);
        EXPECT_EQ(are_aligned(floats.data(), no_floats, floats.data() + i), i % 4 == 0);
    }
}

TEST(UpdateLaunch, DividesByWhatItIsTold) {
    const std::vector<float> sums = {3, -1, 0, 6, 9};  // four at a time, and one
    std::vector<float> host(5), device(5);
    UpdateLaunch launch{.kind = UpdateKind::quotient,
                        .values = host.data(),
                        .gradients = sums.data(),
                        .count = 5,
                        .terms = {.divisor = 3}};
    host_loops().run({&launch, 1});
    launch.values = device.data();
    run_as_kernel({&launch, 1});
    EXPECT_EQ(host, (std::vector<float>{1, -1.0F / 3, 0, 2, 3}));
    EXPECT_EQ(device, host);
}

// What an update takes from sums of its own step, in the words in which the host had it before.

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
