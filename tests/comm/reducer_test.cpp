// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/reducer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "comm/reference.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::hard_value;
using lockstep::test::ranks;
using lockstep::test::same_bits;

constexpr int virtual_ranks = 8;
const std::vector<std::size_t> counts = {900, 40, 16, 2000, 1, 0, 700};
constexpr std::size_t state_count = 50;

struct Variant {
    Transport transport = Transport::automatic;
    BucketLimits limits = {1024, 4096};
    Summation summation = Summation::tree;
    ProgressSettings progress = {};
    std::vector<std::size_t> order = {};
};

/// Every transport with every way of moving buckets.
std::vector<Variant> variants(Summation summation = Summation::tree) {
    std::vector<Variant> all;
    for (const Transport transport : {Transport::shared_memory, Transport::mpi})
        for (const ProgressMode mode : {ProgressMode::in_line, ProgressMode::thread})
            all.push_back({transport, {1024, 4096}, summation, {mode, {}}, {}});
    return all;
}

std::string text(const Variant& variant) {
    return std::string(variant.transport == Transport::mpi ? "mpi" : "shared memory") +
           (variant.progress.mode == ProgressMode::thread ? ", thread" : ", in line") +
           ", buckets of " + std::to_string(variant.limits.first_bytes);
}

/// A stand-in for training: fills slots as backward would, with gradients nobody could guess.
class Training {
  public:
    explicit Training(const Variant& variant)
        : layout(counts, state_count, variant.limits, variant.order),
          plan(virtual_ranks, ranks().size(), variant.summation),
          exchange(make_exchange(ranks(), layout, plan, variant.transport)),
          reducer(layout, plan, ranks().rank(), *exchange, variant.progress) {}

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

    /// The same in one pass over all own leaves; tensor 4 is left out.
    void run_step_together(std::uint64_t step) {
        const int first = leaves_of(ranks().rank(), ranks().size(), virtual_ranks).begin;
        reducer.begin_together();
        const auto fill_all = [&](FloatRange range) {
            for (std::size_t i = 0; i < reducer.places().size(); ++i) {
                const LeafPlace& place = reducer.places()[i];
                fill(reducer.slot(place.slot), range, step, first + static_cast<int>(i));
                for (const LeafPlace::Merge& merge : place.merges)
                    add_into(reducer.slot(merge.into) + range.begin,
                             reducer.slot(merge.from) + range.begin,
                             rounded_to_lines(range.size()));
            }
        };
        for (const std::size_t tensor : any_order(step, first)) {
            if (tensor == 4) continue;
            fill_all(layout.tensor(tensor));
            reducer.add(tensor);
        }
        fill_all(layout.state());
        const FloatRange missing = layout.tensor(4);
        for (int index = 0; index < reducer.partials(); ++index)
            std::fill_n(reducer.slot(index) + missing.begin, missing.size(), 0.0F);
        reducer.end_together();
    }

    /// Each leaf in three passes; tensor 3 is left out of the first, 4 of the last, 5 of all.
    void run_accumulating_step(std::uint64_t step) {
        const LeafRange leaves = leaves_of(ranks().rank(), ranks().size(), virtual_ranks);
        reducer.begin_step();
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            float* slot = reducer.begin_leaf(3);
            fill(slot, layout.state(), step, leaf);
            for (int pass = 1; pass <= 3; ++pass) {
                if (pass > 1) reducer.next_micro_batch();
                for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) {
                    if ((tensor == 3 && pass == 1) || (tensor == 4 && pass == 3) || tensor == 5)
                        continue;
                    accumulate(slot, layout.tensor(tensor), pass);
                    reducer.add(tensor);
                }
            }
            reducer.end_leaf();
        }
        reducer.finish();
    }

    /// Every owner's sums in one vector, seen by this rank.
    std::vector<float> published() {
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const FloatRange own = exchange->own_stripe(b);
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
    static void accumulate(float* slot, FloatRange range, int pass) {
        for (std::size_t i = range.begin; i < range.end; ++i) slot[i] += static_cast<float>(pass);
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

TEST(Reducer, HasTheBitsOfTheWholeTreeForAnyTransportProgressAndBucketSize) {
    std::uint64_t step = 0;
    for (Variant variant : variants()) {
        for (const std::size_t limit : {64u, 1024u, 5000u, 1u << 20}) {
            variant.limits = {limit, 2 * limit};
            Training training(variant);
            training.run_step(++step);
            EXPECT_TRUE(same_bits(training.published(), expected_tree(training.layout, step)))
                << text(variant);
        }
    }
}

TEST(Reducer, KeepsItsBitsStepAfterStep) {
    for (const Variant& variant : variants()) {
        Training training(variant);
        for (std::uint64_t step = 0; step < 30; ++step) {
            training.run_step(step);
            const std::vector<float> values = training.published();
            const bool is_checked = step % 10 == 9;
            EXPECT_TRUE(!is_checked || same_bits(values, expected_tree(training.layout, step)))
                << text(variant) << ", step " << step;
        }
    }
}

TEST(Reducer, SumsPlainlyWhenAskedToAndThatDiffers) {
    for (const Variant& variant : variants(Summation::plain)) {
        Training training(variant);
        training.run_step(3);
        const std::vector<float> values = training.published();
        const auto expected = expected_values(training.layout, [&](std::size_t i) {
            return test::plain_sum_of(
                ranks().size(), virtual_ranks, [&](int leaf) { return hard_value(3, leaf, i); });
        });
        EXPECT_TRUE(same_bits(values, expected)) << text(variant);
        EXPECT_FALSE(same_bits(values, expected_tree(training.layout, 3))) << text(variant);
    }
}

TEST(Reducer, TakesMissingTensorsForZerosAndNamesThem) {
    constexpr std::size_t skipped = 3;
    const auto is_odd = [](int leaf) { return leaf % 2 == 1; };
    const int last_leaf = leaves_of(ranks().rank(), ranks().size(), virtual_ranks).end - 1;
    for (const Variant& variant : variants()) {
        Training training(variant);
        training.run_step(5, skipped, is_odd);
        EXPECT_EQ(training.reducer.missing(),
                  is_odd(last_leaf) ? std::vector{skipped} : std::vector<std::size_t>());
        const FloatRange range = training.layout.tensor(skipped);
        const auto expected = expected_values(training.layout, [&](std::size_t i) {
            const bool in_skipped = i >= range.begin && i < range.end;
            return test::tree_of(0, virtual_ranks, [&](int leaf) {
                return in_skipped && is_odd(leaf) ? 0.0f : hard_value(5, leaf, i);
            });
        });
        EXPECT_TRUE(same_bits(training.published(), expected)) << text(variant);
    }
}

TEST(Reducer, HasTheBitsOfTheWholeTreeWhereAllLeavesAreAddedAtOnce) {
    constexpr std::size_t left_out = 4;
    for (const Variant& variant : variants()) {
        Training training(variant);
        training.reducer.begin_rehearsal();
        training.run_step_together(8);
        for (std::uint64_t step = 0; step < 3; ++step) {
            training.reducer.begin_step();
            training.run_step_together(step);
            training.reducer.finish();
            EXPECT_EQ(training.reducer.missing(), std::vector{left_out});
            const FloatRange range = training.layout.tensor(left_out);
            std::vector<float> expected = expected_tree(training.layout, step);
            std::fill_n(
                expected.begin() + static_cast<std::ptrdiff_t>(range.begin), range.size(), 0);
            EXPECT_TRUE(same_bits(training.published(), expected)) << text(variant);
        }
    }
}

TEST(Reducer, AccumulatesMicroBatchesAndMissesOnlyWhatNoneAdded) {
    for (const Variant& variant : variants()) {
        Training training(variant);
        for (std::uint64_t step = 0; step < 3; ++step) {
            training.run_accumulating_step(step);
            EXPECT_EQ(training.reducer.missing(), std::vector<std::size_t>{5});
            const std::vector<float> values = training.published();
            const auto value_of = [&](std::size_t tensor) {
                return values[training.layout.tensor(tensor).begin];
            };
            EXPECT_EQ(value_of(0), 6.0f * virtual_ranks) << text(variant);
            EXPECT_EQ(value_of(3), 5.0f * virtual_ranks) << text(variant);
            EXPECT_EQ(value_of(4), 3.0f * virtual_ranks) << text(variant);
        }
    }
}

TEST(Reducer, HasTheBitsOfTheWholeTreeInAnyOrderOfTensors) {
    for (Variant variant : variants()) {
        variant.order = {3, 0, 6, 1, 5, 2, 4};
        Training training(variant);
        training.run_step(7);
        EXPECT_TRUE(same_bits(training.published(), expected_tree(training.layout, 7)))
            << text(variant);
    }
}

TEST(Reducer, SaysHowMuchOfItsTimeTheStepNoticed) {
    for (const Variant& variant : variants()) {
        Training training(variant);
        training.run_step(1);
        const OverlapTimes times = training.reducer.take_overlap();
        training.published();
        EXPECT_GT(times.busy_s, 0.0);
        EXPECT_GT(times.exposed_s, 0.0);
        EXPECT_EQ(training.reducer.take_overlap().busy_s, 0.0);
        EXPECT_EQ(training.reducer.take_overlap().exposed_s, 0.0);
    }
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

TEST(Reducer, MayBeDroppedInTheMiddleOfAStep) {
    for (const Variant& variant : variants()) {
        if (variant.transport == Transport::mpi) continue;  // its messages must find each other
        Training training(variant);
        training.reducer.begin_step();
        training.reducer.begin_leaf();
        if (ranks().rank() != 0) continue;
        for (std::size_t tensor = 0; tensor < counts.size(); ++tensor) training.reducer.add(tensor);
    }
}

TEST(Reducer, RefusesMisuse) {
    for (const Variant& variant : variants()) {
        Training training(variant);
        EXPECT_THROW(training.reducer.finish(), Error);
        training.reducer.begin_step();
        training.reducer.begin_leaf(2);
        training.reducer.add(1);
        EXPECT_THROW(training.reducer.add(1), Error);
        EXPECT_THROW(training.reducer.end_leaf(), Error);
        training.reducer.next_micro_batch();
        training.reducer.add(1);
        EXPECT_THROW(training.reducer.add(1), Error);
        EXPECT_THROW(training.reducer.next_micro_batch(), Error);
    }
}

}  // namespace
