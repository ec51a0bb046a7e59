// SPDX-License-Identifier: Apache-2.0
// That the fake notices what our code must not do.
#include "comm/nccl/fake_nccl.hpp"

#include <gmock/gmock.h>

namespace {

using lockstep::NcclApi;
using lockstep::nccl::Comm;
using lockstep::nccl::Result;
using lockstep::test::FakeCuda;
using lockstep::test::FakeNccl;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

/// Two ranks of one thread, ready.
class FakeNcclTest : public testing::Test {
  protected:
    FakeNcclTest() {
        lockstep::nccl::UniqueId id{};
        lockstep::nccl::Config config;
        config.blocking = 0;
        config.comm_name = "test";
        ranks[0].get_unique_id(&id);
        for (int rank = 0; rank < 2; ++rank)
            ranks[rank].comm_init_rank_config(&comms[rank], 2, id, rank, &config);
        for (int rank = 0; rank < 2; ++rank) poll(rank, 10);
    }
    Result poll(int rank, int times) {
        Result state = 0;
        for (int i = 0; i < times; ++i) ranks[rank].comm_get_async_error(comms[rank], &state);
        return state;
    }
    Result sum(int rank, std::size_t count) {
        return ranks[rank].all_reduce(data.get(),
                                      data.get(),
                                      count,
                                      lockstep::nccl::type_float32,
                                      lockstep::nccl::sum,
                                      comms[rank],
                                      stream[rank]);
    }

    void sum_everywhere() {
        for (int rank = 0; rank < 2; ++rank) {
            sum(rank, 8);
            poll(rank, 10);
        }
    }

    /// Sends the last `count` of 8 floats to the other rank, receives the first ones.
    void exchange(int rank, float* floats, std::size_t count) {
        const int peer = 1 - rank, type = lockstep::nccl::type_float32;
        ranks[rank].group_start();
        ranks[rank].send(floats + 8 - count, count, type, peer, comms[rank], stream[rank]);
        ranks[rank].recv(floats, count, type, peer, comms[rank], stream[rank]);
        ranks[rank].group_end();
        poll(rank, 10);
    }
    /// Until the stream of `rank` is empty.
    void wait(int rank) {
        const auto api = cuda.api({});
        lockstep::CudaApi::Event end = nullptr;
        api.create_event(&end);
        api.record_event(end, stream[rank]);
        EXPECT_EQ(api.query_event(end), lockstep::CudaApi::success);
        api.destroy_event(end);
    }

    FakeCuda cuda;
    FakeNccl nccl{cuda};
    NcclApi ranks[2] = {nccl.api(), nccl.api()};
    Comm comms[2] = {};
    std::shared_ptr<float> data = cuda.floats(8);
    lockstep::GpuStream stream[2] = {cuda.make_stream(), cuda.make_stream()};
};

TEST_F(FakeNcclTest, NoticesSizesThatDiffer) {
    for (int rank = 0; rank < 2; ++rank) {
        sum(rank, rank == 0 ? 4 : 8);
        poll(rank, 10);
    }
    EXPECT_THAT(cuda.violations(),
                Contains("operation 0: all_reduce of 4 on one rank, all_reduce of 8 on another"));
}

TEST_F(FakeNcclTest, NoticesAnEndOutOfOrderAndUseAfterIt) {
    ranks[0].comm_revoke(comms[0], 0);
    ranks[0].comm_finalize(comms[0]);
    EXPECT_THAT(cuda.violations(), Contains("finalize after revoke"));
    ranks[1].comm_destroy(comms[1]);
    EXPECT_THAT(cuda.violations(), Contains("destroy before finalize ended"));
    ranks[0].comm_abort(comms[0]);
    poll(0, 1);
    EXPECT_THAT(cuda.violations(), Contains(HasSubstr("of a communicator that is gone")));
}

TEST_F(FakeNcclTest, NoticesMemoryThatWasFreed) {
    sum_everywhere();
    data.reset();
    wait(0);
    EXPECT_THAT(cuda.violations(), Contains(HasSubstr("not allocated")));
}

TEST_F(FakeNcclTest, LaunchesAGroupOnlyAtItsEndAndAfterSomePolls) {
    ranks[0].group_start();
    EXPECT_EQ(sum(0, 8), lockstep::nccl::success);
    EXPECT_EQ(ranks[0].group_end(), lockstep::nccl::in_progress);
    EXPECT_EQ(poll(0, 1), lockstep::nccl::in_progress);
    EXPECT_EQ(poll(0, 5), lockstep::nccl::success);
    EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(FakeNcclTest, MovesTheMessagesOfAGroupAllAtOnce) {
    const auto other = cuda.floats(8);
    data.get()[7] = 5;
    for (int rank = 0; rank < 2; ++rank) exchange(rank, rank == 0 ? data.get() : other.get(), 4);
    wait(0);
    EXPECT_EQ(other.get()[3], 5);
    EXPECT_EQ(nccl.take_sent_bytes(), (std::map<int, std::size_t>{{0, 16}, {1, 16}}));
    EXPECT_EQ(nccl.take_sent_bytes(), (std::map<int, std::size_t>{}));
    EXPECT_THAT(cuda.violations(), IsEmpty());
}

TEST_F(FakeNcclTest, NoticesAMessageThatMeetsAnotherSize) {
    for (int rank = 0; rank < 2; ++rank) exchange(rank, data.get(), rank == 0 ? 4 : 2);
    EXPECT_THAT(cuda.violations(), Contains("recv of 8 bytes meets 16"));
}

TEST_F(FakeNcclTest, CountsWhatARingSends) {
    sum_everywhere();
    EXPECT_EQ(nccl.take_sent_bytes(), (std::map<int, std::size_t>{{0, 32}, {1, 32}}));
}

TEST_F(FakeNcclTest, LacksWhatAnOlderVersionLacks) {
    nccl.version = 21800;
    const NcclApi old = nccl.api();
    EXPECT_FALSE(old.comm_init_rank_scalable);
    EXPECT_FALSE(old.comm_revoke);
    EXPECT_FALSE(old.can_register());
    EXPECT_TRUE(ranks[0].can_register());
}

}  // namespace
