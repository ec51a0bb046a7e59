// SPDX-License-Identifier: Apache-2.0
// The kernel of updates, run on the host thread by thread: the bits of the host's own loops.
#include "replica/update_launch.hpp"

#include "lockstep/core/random.hpp"

#include "replica/optimizer.hpp"
#include "replica/update_loops.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
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
        for (int thread = threads_of_block; thread-- > 0;)
            exact::nonfinite_thread(launch, 0, thread, 1, threads_of_block);
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

struct Vectors {
    std::vector<float> values, gradients, first, second, average;

    Vectors(CounterRandom& random, std::size_t count) {
        for (auto* vector : {&values, &gradients, &first, &second, &average})
            for (std::size_t i = 0; i < count; ++i) vector->push_back(hard_float(random));
        for (float& v : second) v = std::abs(v);
    }

    // Of one tensor, which `cuts` cut.
    std::vector<ParameterPiece> pieces(const Optimizer& optimizer,
                                       const std::vector<std::size_t>& cuts = {}) {
        const std::vector<std::string> states = optimizer.state_names();
        std::vector<ParameterPiece> all;
        for (std::size_t begin = 0, i = 0; i <= cuts.size(); ++i) {
            const std::size_t end = i < cuts.size() ? cuts[i] : values.size();
            ParameterPiece piece{.dimensions = 2,
                                 .count = end - begin,
                                 .values = values.data() + begin,
                                 .gradients = gradients.data() + begin,
                                 .state = {first.data() + begin}};
            for (std::size_t k = 1; k < states.size(); ++k)
                piece.state.push_back((states[k] == average_state ? average : second).data() +
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
    for (std::uint64_t number = 0; number < 10'000; ++number) {
        CounterRandom random(Purpose::test, {number});
        const auto optimizer = make_optimizer(some_settings(random));
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
        for (std::size_t& cut : cuts) cut = random.below(host.values.size() + 1);
        std::ranges::sort(cuts);
        const auto on_host = host.pieces(*optimizer);
        const auto on_device = device.pieces(*optimizer, cuts);
        update_pieces(*optimizer, {}, on_host, ParameterCopy::first, 1, step);
        update_pieces(*optimizer, {}, on_device, ParameterCopy::first, 1, late, kernel);
        ASSERT_TRUE(host.has_bits_of(device)) << "case " << number;
    }
}

TEST(UpdateLaunch, ChangesNothingWhereItIsWithheld) {
    KernelLoops kernel;
    const UpdateDecision decided{.is_withheld = 1};
    for (std::uint64_t number = 0; number < 200; ++number) {
        CounterRandom random(Purpose::test, {number});
        const auto optimizer = make_optimizer(some_settings(random));
        const Vectors before(random, 1 + random.below(300));
        for (UpdateLoops* const loops : {&host_loops(), static_cast<UpdateLoops*>(&kernel)}) {
            Vectors after = before;
            const auto pieces = after.pieces(*optimizer);
            UpdateStep step{.number = 1, .rate = 0.1, .decided = &decided};
            update_pieces(*optimizer, {}, pieces, ParameterCopy::first, 1, step, *loops);
            ASSERT_TRUE(after.has_bits_of(before)) << "case " << number;
            step.decided = nullptr;
            update_pieces(*optimizer, {}, pieces, ParameterCopy::first, 1, step, *loops);
            ASSERT_FALSE(after.has_bits_of(before)) << "case " << number;
        }
    }
}

TEST(UpdateLaunch, FindsWhatIsNotFiniteWhereverItIs) {
    KernelLoops kernel;
    for (const float value : {HUGE_VALF, -HUGE_VALF, std::nanf(""), 3e38F, 1e-45F})
        for (std::size_t at = 0; at < 1'000; ++at) {
            std::vector<float> values(1'000, -3e38F);
            values[at] = value;
            for (UpdateLoops* const loops : {&host_loops(), static_cast<UpdateLoops*>(&kernel)}) {
                std::int64_t* const sum = loops->sums(1);
                loops->add_nonfinite(sum, values.data(), values.size());
                ASSERT_EQ(exact::is_finite(sum), std::isfinite(value)) << value << " at " << at;
            }
        }
}

TEST(UpdateLaunch, DividesByWhatItIsTold) {
    const std::vector<float> sums = {3, -1, 0};
    std::vector<float> host(3), device(3);
    UpdateLaunch launch{.kind = UpdateKind::quotient,
                        .values = host.data(),
                        .gradients = sums.data(),
                        .count = 3,
                        .terms = {.divisor = 3}};
    host_loops().run({&launch, 1});
    launch.values = device.data();
    run_as_kernel({&launch, 1});
    EXPECT_EQ(host, (std::vector<float>{1, -1.0F / 3, 0}));
    EXPECT_EQ(device, host);
}

}  // namespace
}  // namespace lockstep
