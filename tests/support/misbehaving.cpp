// SPDX-License-Identifier: Apache-2.0
// Tests that fail, hang or disagree on purpose; mpi_main_test.cpp starts one at a time.
#include "lockstep/comm/exchange.hpp"

#include "support/mpi_test.hpp"

#include <chrono>
#include <stdexcept>
#include <thread>

namespace {

using lockstep::test::ranks;

TEST(Misbehaving, PassesEverywhere) {
    ranks().barrier();
}

TEST(Misbehaving, FailsOnRankTwo) {
    EXPECT_NE(ranks().rank(), 2) << "first line\nsecond line";
}

TEST(Misbehaving, ThrowsOnRankOne) {
    if (ranks().rank() == 1) throw std::runtime_error("thrown on purpose");
}

TEST(Misbehaving, HangsOnRankTwo) {
    while (ranks().rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ranks().barrier();
}

TEST(Misbehaving, LeavesASharedWaitToTheOthers) {
    using namespace lockstep;
    const FlatLayout layout({}, 1);
    const auto exchange = make_exchange(ranks(), layout, TreePlan(4, 4), Transport::shared_memory);
    while (ranks().rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    exchange->publish();
}

TEST(Misbehaving, LeavesRankThreeOutOfABarrier) {
    if (ranks().rank() != 3) ranks().barrier();
}

}  // namespace
