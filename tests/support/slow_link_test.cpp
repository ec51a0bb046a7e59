// SPDX-License-Identifier: Apache-2.0
#include "support/slow_link.hpp"

#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

// One rank, two buckets of 4 KiB each, and one of state.
TEST(SlowLink, CarriesOneBucketAfterAnotherWithoutHoldingUpItsRank) {
    const std::vector<std::size_t> counts = {1024, 1024};
    const FlatLayout layout{counts, 0, BucketLimits{4096, 4096}};
    SlowLink exchange(make_exchange({}, layout, TreePlan(1, 1)), layout, 4096 / 0.5);
    const double begin_s = now_s();
    for (std::size_t b = 0; b < layout.bucket_count(); ++b) exchange.arrive(b);
    const bool is_carried = exchange.reduce(0, Wait::no) != nullptr;
    EXPECT_FALSE(is_carried && now_s() - begin_s < 0.5);
    EXPECT_TRUE(is_carried || exchange.reduce(0, Wait::yes) != nullptr);
    EXPECT_GE(now_s() - begin_s, 0.5);
    EXPECT_NE(exchange.reduce(1, Wait::yes), nullptr);
    EXPECT_GE(now_s() - begin_s, 1.0);
    EXPECT_GT(exchange.take_wait_s(), 0);
}

}  // namespace
}  // namespace lockstep::test
