// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/gpu_selection.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/cuda_api.hpp"
#include "nccl/nccl_group.hpp"

#include <algorithm>
#include <cstdint>

#include <gmock/gmock.h>

namespace {

using lockstep::NcclBuffer;
using lockstep::NcclCommunicator;
using lockstep::test::FakeRank;

using NcclBufferTest = lockstep::test::FakeRanksTest;

/// Sums a buffer of 2 integers, each its rank + 1; returns whether it was registered.
bool sum_in_buffer(const FakeRank& rank) {
    NcclCommunicator communicator = rank.communicator();
    NcclBuffer first(communicator, 16);
    const NcclBuffer buffer = std::move(first);
    auto* numbers = static_cast<std::int64_t*>(buffer.data());
    std::fill_n(numbers, 2, rank.rank + 1);
    NcclCommunicator::Inside& inside = communicator.inside();
    lockstep::NcclGroup group(inside);
    group.add_up({numbers, 2});
    group.end("a sum");
    const lockstep::NcclPending pending{"a sum", lockstep::make_event(rank.runtime), {}};
    lockstep::record(*rank.runtime, pending.end, inside.stream());
    inside.wait_for(pending);
    EXPECT_EQ(numbers[1], 3);
    return buffer.is_registered();
}

TEST_F(NcclBufferTest, IsRegisteredWhereNcclCan) {
    run(2, [](const FakeRank& rank) { EXPECT_TRUE(sum_in_buffer(rank)); });
    const auto calls = nccl.calls();
    EXPECT_EQ(std::ranges::count(calls, "register gradients"), 2);
    EXPECT_EQ(std::ranges::count(calls, "deregister gradients"), 2);
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(NcclBufferTest, IsPlainMemoryForOldLibraries) {
    nccl.version = 21800;
    run(2, [](const FakeRank& rank) { EXPECT_FALSE(sum_in_buffer(rank)); });
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(NcclBufferTest, IsRegisteredOnAllRanksOrOnNone) {
    nccl.refusing_registration = 1;
    run(2, [](const FakeRank& rank) { EXPECT_FALSE(sum_in_buffer(rank)); });
    const auto calls = nccl.calls();
    EXPECT_EQ(std::ranges::count(calls, "deregister gradients"), 1);
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(NcclBufferTest, LocksPagesOfTheHostAsLongAsTheyAreUsed) {
    std::vector<std::byte> memory(4096);
    run(1, [&](const FakeRank& rank) {
        const lockstep::LockedPages locked(lockstep::gpu_page_lock(rank.runtime), memory);
        EXPECT_EQ(cuda.locked, (std::map<const void*, std::size_t>{{memory.data(), 4096}}));
    });
    EXPECT_TRUE(cuda.locked.empty());
}

TEST_F(NcclBufferTest, SaysWhichCallDidNotLockPages) {
    cuda.is_refusing_locks = true;
    std::vector<std::byte> memory(4096);
    const auto errors = run(1, [&](const FakeRank& rank) {
        lockstep::LockedPages(lockstep::gpu_page_lock(rank.runtime), memory);
    });
    ASSERT_TRUE(errors[0]);
    EXPECT_EQ(errors[0]->code(), "E681");
    EXPECT_THAT(errors[0]->what(), testing::HasSubstr("cudaHostRegister failed: a fake error"));
}

TEST(DescribeGpus, SaysThatThereIsNoDriver) {
    if (lockstep::gpu_driver_fault().empty()) GTEST_SKIP() << "SKIPPED: there is a driver here";
    EXPECT_EQ(lockstep::describe_gpus(), "none (no driver)");
}

}  // namespace
