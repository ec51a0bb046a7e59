// SPDX-License-Identifier: Apache-2.0
#include "road/link_timer.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

constexpr std::size_t bytes = 1'000'000;
constexpr int sender = 3;
constexpr double glance = 50e-6;

/// What is known of a message of which the note and then the rest comes, to a receiver that posts
/// at `posted_s` and looks every `glance`.
LinkTimes timed(double note_s, double message_s, double posted_s) {
    LinkMeter meter;
    LinkTimer timer(meter);
    timer.begin(sender, bytes, posted_s);
    for (double now = posted_s + glance; timer.is_running(); now += glance) {
        timer.look(now);
        if (timer.awaits_note() && now >= note_s) timer.note_came();
        if (timer.awaits_message() && now >= message_s) timer.message_came(now);
    }
    return meter.take().at(0);
}

TEST(LinkTimer, LeavesALateSenderAndReceiverOut) {
    const LinkTimes times = timed(5, 5.01, 0);
    EXPECT_EQ(times.from, sender);
    EXPECT_EQ(times.messages, 1);
    EXPECT_EQ(times.bytes, bytes);
    EXPECT_NEAR(times.seconds, 0.01, 3 * glance);
    EXPECT_GE(times.seconds, 0.01 - 1e-9);  // no link looks faster than it is
    EXPECT_NEAR(timed(1, 5.01, 5).seconds, 0.01, 3 * glance);
}

// It came some time between two looks.
TEST(LinkTimer, BeginsWithTheLookBeforeTheNote) {
    LinkMeter meter;
    LinkTimer timer(meter);
    timer.begin(sender, bytes, 0);
    timer.look(1);
    EXPECT_TRUE(timer.awaits_note());
    timer.look(2);
    timer.note_came();
    timer.look(3);
    EXPECT_TRUE(timer.awaits_message());
    timer.message_came(3.5);
    EXPECT_FALSE(timer.is_running());
    EXPECT_EQ(meter.take().at(0).seconds, 2.5);
    EXPECT_TRUE(meter.take().empty());
}

// The others met an end that was busy.
TEST(LinkMeter, TakesTheFastestEighthOfEachSender) {
    LinkMeter meter;
    for (int i = 1; i <= 20; ++i) {
        meter.add(5, bytes, 21.0 - i);
        meter.add(2, bytes, 0.5);
    }
    meter.add(7, bytes, 3);
    const std::vector<LinkTimes> all = meter.take();
    ASSERT_EQ(all.size(), 3u);
    EXPECT_EQ(all[0].from, 2);
    EXPECT_EQ(all[0].seconds, 1.5);
    EXPECT_EQ(all[1].from, 5);
    EXPECT_EQ(all[1].messages, 3);
    EXPECT_EQ(all[1].bytes, 3 * bytes);
    EXPECT_EQ(all[1].seconds, 1 + 2 + 3);
    EXPECT_EQ(all[2].messages, 1);
}

TEST(LinkMeter, KeepsABoundedNumber) {
    LinkMeter meter;
    for (int i = 0; i < 10'000; ++i) meter.add(1, bytes, i < 9'000 ? 1 : 2);
    const std::vector<LinkTimes> all = meter.take();
    EXPECT_LE(all.at(0).messages, 32);
    EXPECT_EQ(all.at(0).seconds / static_cast<double>(all.at(0).messages), 2);  // the newest
}

TEST(LinkTimes, AddUpBySender) {
    std::vector<LinkTimes> sums;
    add_links(sums, std::vector<LinkTimes>{{5, 1, 10, 1}, {2, 1, 20, 2}});
    add_links(sums, std::vector<LinkTimes>{{2, 3, 30, 3}});
    ASSERT_EQ(sums.size(), 2u);
    EXPECT_EQ(sums[0].from, 2);
    EXPECT_EQ(sums[0].messages, 4);
    EXPECT_EQ(sums[0].bytes, 50u);
    EXPECT_EQ(sums[0].seconds, 5);
    EXPECT_EQ(sums[1].from, 5);
}

}  // namespace
}  // namespace lockstep
