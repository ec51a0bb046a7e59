// SPDX-License-Identifier: Apache-2.0
#include "support/faulty.hpp"

#include "lockstep/core/clock.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

/// One rank, two buckets of 4 KiB each, and one of state.
struct Exchanging {
    std::vector<std::size_t> counts = {1024, 1024};
    FlatLayout layout{counts, 0, BucketLimits{4096, 4096}};
    std::unique_ptr<Exchange> exchange;

    explicit Exchanging(const Faults& faults)
        : exchange(faulty(make_exchange({}, layout, TreePlan(1, 1)), layout, faults)) {}
};

TEST(FaultyExchange, CarriesOneBucketAfterAnotherWithoutHoldingUpItsRank) {
    Exchanging x({.bytes_per_s = 4096 / 0.5});
    const double begin_s = now_s();
    for (std::size_t b = 0; b < x.layout.bucket_count(); ++b) x.exchange->arrive(b);
    const bool is_carried = x.exchange->reduce(0, Wait::no) != nullptr;
    EXPECT_FALSE(is_carried && now_s() - begin_s < 0.5);
    EXPECT_TRUE(is_carried || x.exchange->reduce(0, Wait::yes) != nullptr);
    EXPECT_GE(now_s() - begin_s, 0.5);
    EXPECT_NE(x.exchange->reduce(1, Wait::yes), nullptr);
    EXPECT_GE(now_s() - begin_s, 1.0);
    EXPECT_GT(x.exchange->take_wait_s(), 0);
}

TEST(FaultyExchange, CorruptsOneBucketOnce) {
    Exchanging x({.fault = Fault::corrupt, .at_call = 1});
    for (std::size_t b = 0; b < 2; ++b) x.exchange->arrive(b);
    const float* slot = x.exchange->slot(0);
    std::size_t changed = 0;
    for (std::size_t i = 0; i < x.layout.size(); ++i) changed += slot[i] != 0 ? 1 : 0;
    EXPECT_EQ(changed, 1u);
}

TEST(FaultyExchange, IsLateOnce) {
    Exchanging x({.fault = Fault::delay, .at_call = 1, .delay_s = 0.1});
    x.exchange->arrive(0);
    const double begin_s = now_s();
    x.exchange->arrive(1);
    EXPECT_GE(now_s() - begin_s, 0.1);
}

}  // namespace
}  // namespace lockstep::test
