// SPDX-License-Identifier: Apache-2.0
// The kernel of updates, run on the host thread by thread: the bits of the host's own loops.
#include "replica/update_launch.hpp"

#include "lockstep/core/random.hpp"

#include "replica/optimizer.hpp"
#include "replica/update_loops.hpp"

#include <array>
#include <cstring>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// All threads of the grid, in an order that no GPU promises.
void run_as_kernel(const UpdateLaunch& launch) {
    const std::int64_t blocks = blocks_for(launch.count);
    for (std::int64_t block = blocks; block-- > 0;)
        for (int thread = threads_of_block; thread-- > 0;)
            update::thread(launch, block, thread, blocks, threads_of_block);
}

/// All else is one source anyway.
class KernelLoops : public UpdateLoops {
  public:
    void run(const UpdateLaunch& launch) override { run_as_kernel(launch); }
    std::int64_t* sums(std::size_t count) override { return host_.sums(count); }
    void add_squares(std::int64_t* sum, const float* values, std::size_t count) override {
        host_.add_squares(sum, values, count);
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

    ParameterPiece piece(std::size_t states, bool has_average) {
        ParameterPiece piece{.dimensions = 2,
                             .count = values.size(),
                             .values = values.data(),
                             .gradients = gradients.data(),
                             .state = {first.data()}};
        if (states > 1) piece.state.push_back(second.data());
        if (has_average) piece.state.push_back(average.data());
        return piece;
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
        const OptimizerSettings settings = some_settings(random);
        const auto optimizer = make_optimizer(settings);
        const bool has_average = settings.average_decay > 0;
        const std::size_t states = optimizer->state_names().size() - (has_average ? 1 : 0);
        Vectors host(random, 1 + random.below(300));
        Vectors device = host;
        const UpdateStep step{.number = static_cast<std::int64_t>(1 + random.below(1000)),
                              .rate = random.uniform(),
                              .gradient_scale = static_cast<float>(random.uniform())};
        UpdateStep late = step;
        const UpdateDecision decided{.scale = step.gradient_scale};
        late.gradient_scale = 0;
        late.decided = &decided;
        const ParameterPiece on_host = host.piece(states, has_average);
        const ParameterPiece on_device = device.piece(states, has_average);
        update_pieces(*optimizer, {}, {&on_host, 1}, ParameterCopy::first, 1, step);
        update_pieces(*optimizer, {}, {&on_device, 1}, ParameterCopy::first, 1, late, kernel);
        ASSERT_TRUE(host.has_bits_of(device)) << "case " << number;
    }
}

TEST(UpdateLaunch, ChangesNothingWhereItIsWithheld) {
    KernelLoops kernel;
    const UpdateDecision decided{.is_withheld = 1};
    for (std::uint64_t number = 0; number < 200; ++number) {
        CounterRandom random(Purpose::test, {number});
        const OptimizerSettings settings = some_settings(random);
        const auto optimizer = make_optimizer(settings);
        const bool has_average = settings.average_decay > 0;
        const std::size_t states = optimizer->state_names().size() - (has_average ? 1 : 0);
        const Vectors before(random, 1 + random.below(300));
        for (UpdateLoops* const loops : {&host_loops(), static_cast<UpdateLoops*>(&kernel)}) {
            Vectors after = before;
            const ParameterPiece piece = after.piece(states, has_average);
            UpdateStep step{.number = 1, .rate = 0.1, .decided = &decided};
            update_pieces(*optimizer, {}, {&piece, 1}, ParameterCopy::first, 1, step, *loops);
            ASSERT_TRUE(after.has_bits_of(before)) << "case " << number;
            step.decided = nullptr;
            update_pieces(*optimizer, {}, {&piece, 1}, ParameterCopy::first, 1, step, *loops);
            ASSERT_FALSE(after.has_bits_of(before)) << "case " << number;
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
    host_loops().run(launch);
    launch.values = device.data();
    run_as_kernel(launch);
    EXPECT_EQ(host, (std::vector<float>{1, -1.0F / 3, 0}));
    EXPECT_EQ(device, host);
}

}  // namespace
}  // namespace lockstep
