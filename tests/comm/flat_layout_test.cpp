// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flat_layout.hpp"

#include "lockstep/core/random.hpp"

#include "support/caught.hpp"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

/// A layout and the order its tensors must lie in.
struct OrderedLayout {
    std::vector<std::size_t> order;
    FlatLayout layout;
};

OrderedLayout any_layout() {
    const auto counts =
        *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 5000));
    std::vector<std::size_t> order(counts.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    const bool is_default = *rc::gen::arbitrary<bool>();
    if (!is_default)
        lockstep::shuffle(std::span(order),
                          lockstep::CounterRandom(lockstep::Purpose::test,
                                                  {*rc::gen::arbitrary<std::uint64_t>()}));
    const std::vector<std::size_t> given = is_default ? std::vector<std::size_t>() : order;
    const auto state = *rc::gen::inRange<std::size_t>(0, 300);
    const auto first = *rc::gen::inRange<std::size_t>(0, 20000);
    const auto rest = *rc::gen::inRange<std::size_t>(0, 40000);
    return {order, FlatLayout(counts, state, BucketLimits{first, rest}, given)};
}

std::size_t bytes_of(const FloatRange& range) {
    return range.size() * sizeof(float);
}

RC_GTEST_PROP(FlatLayout, BucketsFollowEachOtherAndBeginOnLines, ()) {
    const FlatLayout layout = any_layout().layout;
    std::size_t end = 0;
    for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
        RC_ASSERT(layout.bucket(b).begin == end);
        end = layout.bucket(b).end;
        RC_ASSERT(end % line_floats == 0);
    }
    RC_ASSERT(end == layout.size());
}

RC_GTEST_PROP(FlatLayout, TensorsLieInTheirBucketsInOrderWithoutOverlap, ()) {
    const auto [order, layout] = any_layout();
    std::vector<std::size_t> found(layout.bucket_count());
    std::size_t end = 0;
    for (const std::size_t i : order) {
        const FloatRange tensor = layout.tensor(i);
        const FloatRange bucket = layout.bucket(layout.bucket_of(i));
        RC_ASSERT(tensor.begin >= end);
        RC_ASSERT(tensor.begin - end < line_floats);
        RC_ASSERT(tensor.begin % line_floats == 0);
        RC_ASSERT(tensor.begin >= bucket.begin);
        RC_ASSERT(tensor.end <= bucket.end);
        ++found[layout.bucket_of(i)];
        end = tensor.end;
    }
    for (std::size_t b = 0; b < found.size(); ++b) RC_ASSERT(found[b] == layout.tensors_in(b));
}

RC_GTEST_PROP(FlatLayout, StripesPartitionEveryBucketOnLines, ()) {
    const FlatLayout layout = any_layout().layout;
    const int ranks = *rc::gen::inRange(1, 20);
    for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
        std::size_t end = layout.bucket(b).begin, least = layout.size(), most = 0;
        for (int rank = 0; rank < ranks; ++rank) {
            const FloatRange stripe = layout.stripe(b, rank, ranks);
            RC_ASSERT(stripe.begin == end);
            RC_ASSERT(stripe.end % line_floats == 0);
            end = stripe.end;
            least = std::min(least, stripe.size());
            most = std::max(most, stripe.size());
        }
        RC_ASSERT(end == layout.bucket(b).end);
        RC_ASSERT(most - least <= line_floats);
    }
}

RC_GTEST_PROP(FlatLayout, OnlySingleTensorsExceedTheLimits, ()) {
    const auto counts = *rc::gen::nonEmpty(
        rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(1, 3000)));
    const BucketLimits limits{4096, 16384};
    const FlatLayout layout(counts, 0, limits);
    for (std::size_t b = 0; b < layout.state_bucket(); ++b) {
        const std::size_t limit = b == 0 ? limits.first_bytes : limits.bytes;
        RC_ASSERT(bytes_of(layout.bucket(b)) <= limit || layout.tensors_in(b) == 1u);
        RC_ASSERT(layout.tensors_in(b) > 0u);
    }
}

TEST(FlatLayout, PutsTheLastTensorFirst) {
    const std::vector<std::size_t> counts = {100, 20, 3};
    const FlatLayout layout(counts, 5);
    EXPECT_EQ(layout.tensor(2), (FloatRange{0, 3}));
    EXPECT_EQ(layout.tensor(1), (FloatRange{16, 36}));
    EXPECT_EQ(layout.tensor(0), (FloatRange{48, 148}));
    EXPECT_EQ(layout.state(), (FloatRange{160, 165}));
    EXPECT_EQ(layout.size(), 176u);
    EXPECT_EQ(layout.bucket_count(), 2u);
    EXPECT_EQ(layout.bucket(layout.state_bucket()), (FloatRange{160, 176}));
}

TEST(FlatLayout, RefusesAnOrderThatIsNoPermutation) {
    const std::vector<std::size_t> counts = {100, 20, 3};
    for (const std::vector<std::size_t>& order :
         {std::vector<std::size_t>{0, 1}, {0, 1, 1}, {0, 1, 3}, {2, 1, 0, 0}})
        EXPECT_EQ(lockstep::test::caught_code([&] { FlatLayout(counts, 0, {}, order); }), "E700");
}

TEST(FlatLayout, GivesALargeTensorABucketOfItsOwn) {
    const std::vector<std::size_t> counts = {16, 1000, 16};
    const FlatLayout layout(counts, 0, BucketLimits{128, 128});
    EXPECT_EQ(layout.bucket_count(), 4u);
    EXPECT_EQ(layout.tensors_in(1), 1u);
    EXPECT_EQ(layout.bucket(1).size(), 1008u);
}

TEST(FlatLayout, OfNothingIsOneEmptyStateBucket) {
    const FlatLayout layout({}, 0);
    EXPECT_EQ(layout.size(), 0u);
    EXPECT_EQ(layout.bucket_count(), 1u);
    EXPECT_EQ(layout.stripe(0, 2, 3).size(), 0u);
}

}  // namespace
