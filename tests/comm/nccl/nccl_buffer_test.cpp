// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_buffer.hpp"

#include "lockstep/comm/gpu_report.hpp"
#include "lockstep/comm/nccl_collectives.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/cuda_library.hpp"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using lockstep::DeviceSpan;
using lockstep::NcclBuffer;
using lockstep::NcclCommunicator;
using lockstep::test::FakeRank;

using NcclBufferTest = lockstep::test::FakeRanksTest;

/// Sums a buffer of 4 floats, each its rank + 1; returns whether it was registered.
bool sum_in_buffer(const FakeRank& rank) {
    NcclCommunicator communicator = rank.communicator();
    NcclBuffer first(communicator, 16);
    const NcclBuffer buffer = std::move(first);
    auto* floats = static_cast<float*>(buffer.data());
    std::fill_n(floats, 4, static_cast<float>(rank.rank + 1));
    const DeviceSpan span{buffer.data(), 4};
    lockstep::NcclCollectives(communicator)
        .all_reduce({&span, 1}, 1, rank.cuda.make_stream())
        .wait();
    EXPECT_EQ(floats[3], 3);
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
    if (lockstep::why_no_driver().empty()) GTEST_SKIP() << "SKIPPED: there is a driver here";
    EXPECT_EQ(lockstep::describe_gpus(), "none (no driver)");
}

}  // namespace
