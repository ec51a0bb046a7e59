// SPDX-License-Identifier: Apache-2.0
// Runs where /dev/shm has 48 MiB.
#include "lockstep/comm/collectives.hpp"

#include "collectives/back_ends.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <cstdint>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

constexpr std::size_t too_much = 64 << 20, little = 1 << 20;

/// Buffers of a rank's number; true if their sum comes out right.
bool sums(AllReduce& group, std::byte* memory, std::size_t bytes) {
    auto* numbers = reinterpret_cast<std::int64_t*>(memory);
    const std::size_t count = bytes / sizeof(std::int64_t);
    std::fill_n(numbers, count, ranks().rank());
    group.all_reduce(numbers, count, DataType::int64);
    const std::int64_t sum = ranks().size() * (ranks().size() - 1) / 2;
    return std::count(numbers, numbers + count, sum) == static_cast<std::ptrdiff_t>(count);
}

TEST(NoRoom, IsAnErrorForWhoAsksForSharedMemoryByName) {
    const auto group = make_all_reduce(ranks(), Algorithm::shared_memory);
    EXPECT_EQ(test::caught_code([&] { group->lend(too_much); }), "E632");
    EXPECT_TRUE(sums(*group, group->lend(little), little));
}

TEST(NoRoom, IsAWarningForOthersWhoGetPrivateMemory) {
    const auto group = make_shared_memory_collectives(ranks(), NoRoom::lends_private_memory);
    std::byte* shared = group->lend(little);
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    std::byte* memory = group->lend(too_much);
    std::byte* more = group->lend(too_much);
    const std::string shown =
        testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout();
    EXPECT_NE(shown.find("--shm-size"), std::string::npos);
    EXPECT_EQ(shown.find("--shm-size"), shown.rfind("--shm-size"));
    EXPECT_TRUE(sums(*group, shared, little));
    EXPECT_TRUE(sums(*group, memory, too_much));
    EXPECT_TRUE(sums(*group, more + 8, little));
}

}  // namespace
