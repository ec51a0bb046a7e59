// SPDX-License-Identifier: Apache-2.0
// The kernel's own source on the host, thread by thread, against the sum of the CPU's exchanges:
// equal bits.
#include "nccl/tree_sum.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/random.hpp"

#include "base/aligned_floats.hpp"
#include "comm/nccl/fake_cuda.hpp"
#include "comm/reference.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;

constexpr std::array rare_values = {0.0f,
                                    -0.0f,
                                    std::numeric_limits<float>::infinity(),
                                    -std::numeric_limits<float>::infinity(),
                                    std::numeric_limits<float>::quiet_NaN(),
                                    std::numeric_limits<float>::denorm_min(),
                                    -std::numeric_limits<float>::min(),
                                    std::numeric_limits<float>::max(),
                                    std::numeric_limits<float>::lowest()};

/// One sum of a stripe, as its owner has it before its eyes.
class RandomSum {
  public:
    explicit RandomSum(std::uint64_t number)
        : random_(Purpose::test, {number}),
          plan_(make_plan()),
          count_(line_floats * below(20)),
          memory_(make_aligned_floats(plan_.partials().size() * count_ + 1)) {
        const auto own = plan_.partials_of_rank(
            static_cast<int>(below(static_cast<std::uint64_t>(plan_.ranks()))));
        const auto own_first = own.data() - plan_.partials().data();
        fill(number);
        launch_ = {.own_pitch = static_cast<std::int64_t>(count_),
                   .received_pitch = static_cast<std::int64_t>(count_),
                   .merges_after = plan_.merges_after().data(),
                   .own_first = static_cast<std::int32_t>(own_first),
                   .own_count = static_cast<std::int32_t>(own.size()),
                   .partials = static_cast<std::int32_t>(plan_.partials().size()),
                   .count = static_cast<std::int64_t>(count_)};
    }

    /// In place, over the first of the owner's own partials.
    std::vector<float> by_kernel() {
        std::vector<float> own, received;
        for (std::int32_t k = 0; k < launch_.partials; ++k) {
            const bool is_own = k >= launch_.own_first && k < launch_.own_first + launch_.own_count;
            auto& to = is_own ? own : received;
            to.insert(to.end(), partial(k), partial(k) + count_);
        }
        launch_.own = launch_.out = own.data();
        launch_.received = received.data();
        test::run_on_host(launch_);
        return {own.begin(), own.begin() + static_cast<std::ptrdiff_t>(count_)};
    }

    std::vector<float> by_exchanges() {
        std::vector<const float*> inputs;
        for (std::int32_t k = 0; k < launch_.partials; ++k) inputs.push_back(partial(k));
        const auto out = make_aligned_floats(count_ + 1);
        test::sum_of_partials(plan_, inputs, out.get(), count_);
        return {out.get(), out.get() + count_};
    }

    /// One partial after the other: no tree.
    std::vector<float> from_the_left() {
        std::vector<float> sum(partial(0), partial(0) + count_);
        for (std::int32_t k = 1; k < launch_.partials; ++k)
            for (std::size_t i = 0; i < count_; ++i) sum[i] += partial(k)[i];
        return sum;
    }

  private:
    std::uint64_t below(std::uint64_t end) { return random_.below(end); }
    TreePlan make_plan() {
        const int virtual_ranks = 1 << below(8);
        return {virtual_ranks, 1 + static_cast<int>(below(static_cast<unsigned>(virtual_ranks)))};
    }
    float* partial(std::int32_t k) const {
        return memory_.get() + static_cast<std::size_t>(k) * count_;
    }
    /// Mostly hard to add; one in 64 of no ordinary kind.
    void fill(std::uint64_t number) {
        for (std::size_t i = 0; i < plan_.partials().size() * count_; ++i)
            memory_[i] = below(64) == 0 ? rare_values[below(rare_values.size())]
                                        : test::hard_value(number, 0, i);
    }

    CounterRandom random_;
    const TreePlan plan_;
    const std::size_t count_;
    const AlignedFloats memory_;
    TreeSumLaunch launch_;
};

/// Any NaN is as good as another: which payload survives an addition is the processor's choice.
bool is_same(float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
}

std::size_t different(const std::vector<float>& a, const std::vector<float>& b) {
    return std::inner_product(
        a.begin(), a.end(), b.begin(), std::size_t{0}, std::plus<>(), [](float x, float y) {
            return std::size_t{is_same(x, y) ? 0u : 1u};
        });
}

TEST(TreeSumOfAGpu, HasTheBitsOfTheExchangesSumInEveryCase) {
    std::size_t floats = 0, nans = 0, unlike_plain = 0;
    for (std::uint64_t number = 0; number < 10000; ++number) {
        RandomSum sum(number);
        const std::vector<float> expected = sum.by_exchanges(), got = sum.by_kernel();
        ASSERT_EQ(different(got, expected), 0u) << "case " << number;
        floats += expected.size();
        nans += static_cast<std::size_t>(
            std::ranges::count_if(expected, [](float v) { return std::isnan(v); }));
        unlike_plain += different(got, sum.from_the_left());
    }
    // The cases are worth something: there were NaNs and others, and another order shows.
    EXPECT_GT(nans, floats / 50);
    EXPECT_LT(nans, floats * 3 / 4);
    EXPECT_GT(unlike_plain, floats / 10);
}

TEST(TreeSumOfAGpu, AddsNothingWhereThereIsOnePartial) {
    std::vector<float> own = {-0.0f, std::numeric_limits<float>::denorm_min()};
    const int none = 0;
    test::run_on_host({.own = own.data(),
                       .merges_after = &none,
                       .own_count = 1,
                       .partials = 1,
                       .out = own.data(),
                       .count = 2});
    EXPECT_TRUE(is_same(own[0], -0.0f));
    EXPECT_TRUE(is_same(own[1], std::numeric_limits<float>::denorm_min()));
}

TEST(TreeSumOfAGpu, StridesOverMoreElementsThanAGridHasThreads) {
    const std::int64_t count = 3000;
    const std::vector<float> own(count, 1), received(count, 2);
    std::vector<float> out(count, -1);
    const std::array merges = {0, 1};
    const TreeSumLaunch launch{.own = own.data(),
                               .received = received.data(),
                               .merges_after = merges.data(),
                               .own_count = 1,
                               .partials = 2,
                               .out = out.data(),
                               .count = count};
    for (int thread = 0; thread < threads_of_block; ++thread)
        tree_sum_thread(launch, 1, thread, 2, threads_of_block);
    for (int thread = 0; thread < threads_of_block; ++thread)
        tree_sum_thread(launch, 0, thread, 2, threads_of_block);
    EXPECT_EQ(std::ranges::count(out, 3.0f), count);
}

}  // namespace
