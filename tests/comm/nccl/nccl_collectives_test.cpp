// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_collectives.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/nccl_inside.hpp"

#include <atomic>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using lockstep::DataType;
using lockstep::DeviceSpan;
using lockstep::ElementRange;
using lockstep::Error;
using lockstep::GpuStream;
using lockstep::NcclCollectives;
using lockstep::NcclCommunicator;
using lockstep::test::FakeRank;
using testing::HasSubstr;

using NcclCollectivesTest = lockstep::test::FakeRanksTest;

float input(int rank, std::size_t i) {
    return static_cast<float>((rank + 1) * static_cast<int>(i % 7));
}

float summed(int ranks, std::size_t i) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += input(rank, i);
    return sum;
}

/// A buffer of this rank's inputs.
std::shared_ptr<float> filled(const FakeRank& rank, std::size_t count) {
    auto data = rank.cuda.floats(count);
    for (std::size_t i = 0; i < count; ++i) data.get()[i] = input(rank.rank, i);
    return data;
}

void expect_no_errors(const std::vector<std::optional<Error>>& errors) {
    for (const auto& error : errors) EXPECT_FALSE(error) << error->text();
}

/// Elements of [range) of `data` that are not `factor` times the sum.
int wrong(const float* data, ElementRange range, int ranks, float factor = 1) {
    int count = 0;
    for (std::size_t i = range.begin; i < range.end; ++i)
        count += data[i] == summed(ranks, i) * factor ? 0 : 1;
    return count;
}

TEST_F(NcclCollectivesTest, SumAndAverageOverAnyNumberOfRanks) {
    for (const int ranks : {1, 2, 4})
        expect_no_errors(run(ranks, [&](const FakeRank& rank) {
            NcclCommunicator communicator = rank.communicator();
            NcclCollectives collectives(communicator);
            const GpuStream stream = rank.cuda.make_stream();
            for (const double factor : {1.0, 1.0 / ranks}) {
                const auto data = filled(rank, 100);
                const DeviceSpan buffer{data.get(), 100};
                collectives.all_reduce({&buffer, 1}, factor, stream).wait();
                EXPECT_EQ(wrong(data.get(), {0, 100}, ranks, static_cast<float>(factor)), 0);
            }
        }));
}

TEST_F(NcclCollectivesTest, SumSeveralBuffersAndTypesInOneLaunch) {
    expect_no_errors(run(3, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        const auto floats = filled(rank, 10), longs = rank.cuda.floats(20);
        auto* numbers = reinterpret_cast<std::int64_t*>(longs.get());
        std::iota(numbers, numbers + 10, rank.rank);
        const std::array buffers = {DeviceSpan{floats.get(), 10},
                                    DeviceSpan{numbers, 10, DataType::int64}};
        NcclCollectives(communicator).all_reduce(buffers, 1, rank.cuda.make_stream()).wait();
        EXPECT_EQ(wrong(floats.get(), {0, 10}, 3), 0);
        EXPECT_EQ(numbers[4], 3 * 4 + 0 + 1 + 2);
    }));
}

// 64: equal stripes; 100: a longer last one; 20: some are empty.
TEST_F(NcclCollectivesTest, ScatterAndGatherStripesOfAnySize) {
    for (const std::size_t count : {64u, 100u, 20u, 1u})
        expect_no_errors(run(4, [&](const FakeRank& rank) {
            NcclCommunicator communicator = rank.communicator();
            NcclCollectives collectives(communicator);
            const GpuStream stream = rank.cuda.make_stream();
            const auto data = filled(rank, count);
            const DeviceSpan buffer{data.get(), count};
            collectives.reduce_scatter(buffer, 1, stream).wait();
            const ElementRange mine = lockstep::stripe_of(count, DataType::float32, rank.rank, 4);
            EXPECT_EQ(wrong(data.get(), mine, 4), 0);
            for (std::size_t i = 0; i < count; ++i)
                if (i < mine.begin || i >= mine.end) data.get()[i] = -1;
            collectives.all_gather(buffer, stream).wait();
            EXPECT_EQ(wrong(data.get(), {0, count}, 4), 0);
        }));
}

TEST_F(NcclCollectivesTest, BroadcastFromAnyRank) {
    expect_no_errors(run(3, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        NcclCollectives collectives(communicator);
        for (int root = 0; root < 3; ++root) {
            const auto data = filled(rank, 8);
            collectives.broadcast({data.get(), 8}, root, rank.cuda.make_stream()).wait();
            EXPECT_EQ(data.get()[3], input(root, 3));
        }
    }));
}

TEST_F(NcclCollectivesTest, ReadNothingBeforeItsProducer) {
    expect_no_errors(run(2, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        NcclCollectives collectives(communicator);
        const GpuStream autograd = rank.cuda.make_stream();
        const auto data = rank.cuda.floats(8);
        std::atomic<bool> may_produce = false;
        rank.cuda.enqueue(autograd, [&] {
            if (!may_produce) return false;
            for (std::size_t i = 0; i < 8; ++i) data.get()[i] = input(rank.rank, i);
            return true;
        });
        const DeviceSpan buffer{data.get(), 8};
        const auto work = collectives.all_reduce({&buffer, 1}, 1, autograd);
        for (int i = 0; i < 20; ++i) EXPECT_FALSE(work.is_done());
        may_produce = true;
        work.wait();
        EXPECT_EQ(wrong(data.get(), {0, 8}, 2), 0);
    }));
}

TEST_F(NcclCollectivesTest, LetAStreamWaitWithoutTheThread) {
    expect_no_errors(run(2, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        const GpuStream autograd = rank.cuda.make_stream();
        const auto data = filled(rank, 8);
        const DeviceSpan buffer{data.get(), 8};
        const auto work = NcclCollectives(communicator).all_reduce({&buffer, 1}, 1, autograd);
        work.let_wait(autograd);
        float seen = 0;
        rank.cuda.enqueue(autograd, [&] {
            seen = data.get()[3];
            return true;
        });
        const auto after = lockstep::make_event(rank.runtime);
        rank.runtime->cuda().record_event(after.value(), autograd);
        while (rank.runtime->cuda().query_event(after.value()) != 0) std::this_thread::yield();
        EXPECT_EQ(seen, summed(2, 3));
    }));
}

TEST_F(NcclCollectivesTest, KeepBuffersThatEverybodyElseForgot) {
    expect_no_errors(run(2, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        NcclCollectives collectives(communicator);
        const GpuStream stream = rank.cuda.make_stream();
        for (int i = 0; i < 10; ++i) {
            auto data = filled(rank, 8);
            const DeviceSpan buffer{data.get(), 8};
            collectives.all_reduce({&buffer, 1}, 1, stream, std::move(data));
        }
        communicator.close();
        EXPECT_EQ(rank.cuda.violations().size(), 0u);
    }));
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(NcclCollectivesTest, RefuseAnIntegerMean) {
    const auto errors = run(1, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        const auto data = filled(rank, 8);
        const DeviceSpan buffer{data.get(), 2, DataType::int64};
        NcclCollectives(communicator).all_reduce({&buffer, 1}, 0.5, rank.cuda.make_stream());
    });
    ASSERT_TRUE(errors[0]);
    EXPECT_THAT(errors[0]->text(), HasSubstr("integers are summed without a factor"));
}

}  // namespace
