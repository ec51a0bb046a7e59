// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/reducer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "comm/reference.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::hard_value;
using lockstep::test::ranks;

constexpr int virtual_ranks = 8;
const std::vector<std::size_t> counts = {900, 40, 16, 2000, 1, 0, 700};
constexpr std::size_t state_count = 50;

struct Variant {
    Transport transport = Transport::automatic;
    BucketLimits limits = {1024, 4096};
    Summation summation = Summation::tree;
};

/// A stand-in for training: fills slots as backward would, with gradients nobody could guess.
class Training {
  public:
    explicit Training(const Variant& variant)
        : layout(counts, state_count, variant.limits),
          plan(virtual_ranks, ranks().size(), variant.summation),
          exchange(make_exchange(ranks(), layout, plan, variant.transport)),
          reducer(layout, plan, ranks().rank(), *exchange) {}

    /// `skipped` is left out by the ranks and leaves for which `skips(leaf)` holds.
    template <class Skips>
    void run_step(std::uint64_t step, std::size_t skipped, Skips&& skips) {
        const LeafRange leaves = leaves_of(ranks().rank(), ranks().size(), virtual_ranks);
        reducer.begin_step();
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            float* slot = reducer.begin_leaf();
            fill(slot, layout.state(), step, leaf);
            for (const std::size_t tensor : any_order(step, leaf)) {
                if (tensor == skipped && skips(leaf)) continue;
                fill(slot, layout.tensor(tensor), step, leaf);
                reducer.add(tensor);
            }
            reducer.end_leaf();
        }
        reducer.finish();
    }
    void run_step(std::uint64_t step) {
        run_step(step, 0, [](int) { return false; });
    }

    /// Every owner's sums in one vector, seen by this rank.
    std::vector<float> published() {
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const FloatRange own = layout.stripe(b, ranks().rank(), ranks().size());
            std::copy_n(reducer.reduced(b), own.size(), exchange->values() + own.begin);
        }
        exchange->publish();
        std::vector<float> copy(exchange->values(), exchange->values() + layout.size());
        ranks().barrier();
        return copy;
    }

    FlatLayout layout;
    TreePlan plan;
    std::unique_ptr<Exchange> exchange;
    Reducer reducer;

  private:
    static void fill(float* slot, FloatRange range, std::uint64_t step, int leaf) {
        for (std::size_t i = range.begin; i < range.end; ++i) slot[i] = hard_value(step, leaf, i);
    }
    static std::vector<std::size_t> any_order(std::uint64_t step, int leaf) {
        std::vector<std::size_t> order(counts.size());
        std::iota(order.begin(), order.end(), std::size_t{0});
        shuffle(std::span(order),
                CounterRandom(Purpose::test, {step, static_cast<std::uint64_t>(leaf)}));
        return order;
    }
};

/// What `published()` must be: `sum(i)` in every tensor and in the state, zero in the padding.
template <class Sum>
std::vector<float> expected_values(const FlatLayout& layout, Sum&& sum) {
    std::vector<float> values(layout.size());
    const auto fill = [&](FloatRange range) {
        for (std::size_t i = range.begin; i < range.end; ++i) values[i] = sum(i);
    };
    for (std::size_t tensor = 0; tensor < layout.tensor_count(); ++tensor)
        fill(layout.tensor(tensor));
    fill(layout.state());
    return values;
}

std::vector<float> expected_tree(const FlatLayout& layout, std::uint64_t step) {
    return expected_values(layout, [&](std::size_t i) {
        return test::tree_of(0, virtual_ranks, [&](int leaf) { return hard_value(step, leaf, i); });
    });
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST(Reducer, HasTheBitsOfTheWholeTreeForAnyTransportAndBucketSize) {
    std::uint64_t step = 0;
    for (const Transport transport : {Transport::shared_memory, Transport::mpi}) {
        for (const std::size_t limit : {64u, 1024u, 5000u, 1u << 20}) {
            Training training({transport, {limit, 2 * limit}, Summation::tree});
            training.run_step(++step);
            EXPECT_TRUE(same_bits(training.published(), expected_tree(training.layout, step)))
                << training.exchange->name() << ", buckets of " << limit;
        }
    }
}

TEST(Reducer, KeepsItsBitsOverAHundredSteps) {
    for (const Transport transport : {Transport::shared_memory, Transport::mpi}) {
        Training training({transport});
        for (std::uint64_t step = 0; step < 100; ++step) {
            training.run_step(step);
            const std::vector<float> values = training.published();
            const bool is_checked = step % 10 == 0 || step == 99;
            EXPECT_TRUE(!is_checked || same_bits(values, expected_tree(training.layout, step)))
                << step;
        }
    }
}

TEST(Reducer, SumsPlainlyWhenAskedToAndThatDiffers) {
    for (const Transport transport : {Transport::shared_memory, Transport::mpi}) {
        Training training({transport, {1024, 4096}, Summation::plain});
        training.run_step(3);
        const std::vector<float> values = training.published();
        const auto expected = expected_values(training.layout, [&](std::size_t i) {
            return test::plain_sum_of(
                ranks().size(), virtual_ranks, [&](int leaf) { return hard_value(3, leaf, i); });
        });
        EXPECT_TRUE(same_bits(values, expected));
        EXPECT_FALSE(same_bits(values, expected_tree(training.layout, 3)));
    }
}

TEST(Reducer, TakesMissingTensorsForZerosAndNamesThem) {
    constexpr std::size_t skipped = 3;
    const auto is_odd = [](int leaf) { return leaf % 2 == 1; };
    Training training({});
    training.run_step(5, skipped, is_odd);
    const int last_leaf = leaves_of(ranks().rank(), ranks().size(), virtual_ranks).end - 1;
    const auto missing = training.reducer.missing();
    EXPECT_EQ(std::vector(missing.begin(), missing.end()),
              is_odd(last_leaf) ? std::vector{skipped} : std::vector<std::size_t>());
    const FloatRange range = training.layout.tensor(skipped);
    const auto expected = expected_values(training.layout, [&](std::size_t i) {
        const bool in_skipped = i >= range.begin && i < range.end;
        return test::tree_of(0, virtual_ranks, [&](int leaf) {
            return in_skipped && is_odd(leaf) ? 0.0f : hard_value(5, leaf, i);
        });
    });
    EXPECT_TRUE(same_bits(training.published(), expected));
}

TEST(Reducer, ReducesWithoutASingleTensor) {
    const FlatLayout layout({}, 0);
    const TreePlan plan(virtual_ranks, ranks().size());
    const auto exchange = make_exchange(ranks(), layout, plan);
    Reducer reducer(layout, plan, ranks().rank(), *exchange);
    const LeafRange leaves = leaves_of(ranks().rank(), ranks().size(), virtual_ranks);
    reducer.begin_step();
    for (int i = 0; i < leaves.size(); ++i) {
        reducer.begin_leaf();
        reducer.end_leaf();
    }
    reducer.finish();
    exchange->publish();
}

TEST(Reducer, RefusesMisuse) {
    Training training({});
    EXPECT_THROW(training.reducer.finish(), Error);
    training.reducer.begin_step();
    training.reducer.begin_leaf();
    training.reducer.add(1);
    EXPECT_THROW(training.reducer.add(1), Error);
}

}  // namespace
