// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/collectives.hpp"

#include "collectives/back_ends.hpp"
#include "collectives/sum_kernels.hpp"
#include "comm/collectives/rounds.hpp"
#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::caught;
using lockstep::test::Elements;
using lockstep::test::hard_elements;
using lockstep::test::ranks;
using testing::HasSubstr;

class SharedMemory : public testing::Test, public test::CollectiveRounds {
  protected:
    SharedMemory() : CollectiveRounds(make_shared_memory_collectives(ranks())) {}
};

TEST_F(SharedMemory, GivesTheBalancedSumsBitsInAnyMixOfCallsTypesCountsAndMemory) {
    lent();
    for (std::uint64_t number = 0; number < 300; ++number) play({number});
}

TEST_F(SharedMemory, SumsLargeMessagesOfEveryTypeFromAnyMemory) {
    lent();
    for (const DataType type : all_data_types()) {
        const std::size_t count = 1'000'001 / size_of(type);
        std::vector<Elements> inputs;
        for (int rank = 0; rank < ranks().size(); ++rank)
            inputs.push_back(hard_elements(type, count, 1, 7, rank));
        const Elements sum = test::sum_by_elements(balanced_order(ranks().size()), inputs);
        Elements& mine = inputs[static_cast<std::size_t>(ranks().rank())];
        std::copy_n(mine.data(), mine.bytes(), lent());
        group->all_reduce(lent(), count, type);
        group->all_reduce(mine.data(), count, type);
        EXPECT_TRUE(mine == sum) << name_of(type);
        EXPECT_TRUE(std::equal(sum.data(), sum.data() + sum.bytes(), lent())) << name_of(type);
    }
}

TEST_F(SharedMemory, NeedsNoBufferForNothing) {
    group->all_reduce(nullptr, 0, DataType::float64);
    group->reduce_scatter(nullptr, 0, DataType::int64);
    group->all_gather(nullptr, 0, DataType::bfloat16);
    group->broadcast(nullptr, 0, ranks().size() - 1);
}

TEST_F(SharedMemory, LendsSeveralTimes) {
    const std::array<std::byte*, 3> lent = {group->lend(10), group->lend(0), group->lend(100'000)};
    for (std::byte* memory : {lent[0], lent[2]}) {
        auto* numbers = reinterpret_cast<std::int64_t*>(memory);
        *numbers = ranks().rank();
        group->all_reduce(numbers, 1, DataType::int64);
        EXPECT_EQ(*numbers, ranks().size() * (ranks().size() - 1) / 2);
    }
}

TEST_F(SharedMemory, SaysThatThereIsNoRoomToLend) {
    LOCKSTEP_NEEDS_RANKS(2);
    EXPECT_EQ(test::caught_code([&] { group->lend(std::size_t{1} << 50); }), "E632");
    group->barrier();
}

TEST_F(SharedMemory, NamesWhoDidNotComeToWhichCallUntilTheDeadline) {
    LOCKSTEP_NEEDS_RANKS(2);
    const int late = ranks().size() - 1;
    group->barrier();
    if (ranks().rank() != late) {
        std::vector<float> data(20'000);
        group->set_deadline(1);
        const auto error =
            caught([&] { group->all_reduce(data.data(), data.size(), DataType::float32); });
        EXPECT_EQ(error ? error->code() : "", "E630");
        EXPECT_THAT(error ? error->what() : "", HasSubstr(fmt::format("{} did not", late)));
        EXPECT_THAT(error ? error->what() : "", HasSubstr("all-reduce of 20,000 float (call 2)"));
    }
    ranks().barrier();
}

TEST_F(SharedMemory, NamesWhoseCallIsAnother) {
    LOCKSTEP_NEEDS_RANKS(2);
    const bool is_other = ranks().rank() == ranks().size() - 1;
    std::vector<float> data(101);
    const auto error =
        caught([&] { group->all_reduce(data.data(), is_other ? 101 : 100, DataType::float32); });
    EXPECT_EQ(error ? error->code() : "", "E633");
    EXPECT_THAT(
        error ? error->what() : "",
        HasSubstr(fmt::format("rank {} came to 'all-reduce of 101 float'", ranks().size() - 1)));
    ranks().barrier();
}

TEST_F(SharedMemory, CompletesWhenADeadlineIsFarOff) {
    group->set_deadline(60);
    for (std::uint64_t number = 0; number < 20; ++number) play({number});
}

TEST(SharedMemoryOfOneRank, NeedsNoMpi) {
    const auto alone = make_shared_memory_collectives(Communicator());
    auto* data = reinterpret_cast<float*>(alone->lend(1000));
    data[0] = 3;
    alone->all_reduce(data, 250, DataType::float32);
    alone->broadcast(data, 1000, 0);
    EXPECT_EQ(data[0], 3);
}

}  // namespace
