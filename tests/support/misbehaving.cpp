// SPDX-License-Identifier: Apache-2.0
// Tests that fail, hang or disagree on purpose; mpi_main_test.cpp starts one at a time.
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

TEST(Misbehaving, LeavesRankThreeOutOfABarrier) {
    if (ranks().rank() != 3) ranks().barrier();
}

}  // namespace
