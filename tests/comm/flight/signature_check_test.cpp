// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/signature_check.hpp"

#include "lockstep/comm/exchange.hpp"
#include "lockstep/comm/rank_trace.hpp"
#include "lockstep/comm/recorded.hpp"

#include "support/caught.hpp"
#include "support/mpi_test.hpp"
#include "support/temp_dir.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using test::ranks;
using testing::HasSubstr;

std::unique_ptr<Collectives> checked() {
    return signature_checked(make_collectives(Communicator()), ranks());
}

TEST(SignatureCheck, LetsEqualCallsPass) {
    const auto all = checked();
    std::vector<float> data(100);
    for (int round = 0; round < 3; ++round) {
        all->all_reduce(data.data(), 100, DataType::float32);
        all->reduce_scatter(data.data(), 100, DataType::float32);
        all->all_gather(data.data(), 50, DataType::float32);
        all->broadcast(data.data(), 8, 0);
        all->barrier();
    }
}

TEST(SignatureCheck, NamesTheRankWithAnotherSize) {
    LOCKSTEP_NEEDS_RANKS(3);
    const auto all = checked();
    std::vector<float> data(200);
    const int last = ranks().size() - 1;
    const auto error = test::caught([&] {
        all->all_reduce(data.data(), ranks().rank() == last ? 200 : 100, DataType::float32);
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E661");
    EXPECT_THAT(error->what(),
                HasSubstr("rank " + std::to_string(last) + " differs from ranks 0-"));
    EXPECT_THAT(error->what(), HasSubstr("all-reduce of 100 x float"));
}

TEST(SignatureCheck, NamesTheRankWithAnotherOperation) {
    LOCKSTEP_NEEDS_RANKS(2);
    const auto all = checked();
    std::vector<float> data(100);
    const auto error = test::caught([&] {
        if (ranks().rank() == 1)
            all->barrier();
        else
            all->all_gather(data.data(), 100, DataType::float32);
    });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E661");
    EXPECT_THAT(error->what(), HasSubstr("rank 1 differs from rank"));
}

TEST(MakeExchange, NamesTheRankWithAnotherLayout) {
    LOCKSTEP_NEEDS_RANKS(2);
    const std::vector<std::size_t> counts = {1000, ranks().rank() == 1 ? 18u : 17u};
    const FlatLayout layout(counts, 4);
    const auto error =
        test::caught([&] { make_exchange(ranks(), layout, TreePlan(4, ranks().size())); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), "E662");
    EXPECT_THAT(error->what(), HasSubstr("rank 1 differs from rank"));
}

TEST(Recorded, NotesWhatGoesThroughAnExchange) {
    const test::TempDir folder;
    const std::vector<std::size_t> counts = {1000, 17};
    const FlatLayout layout(counts, 4, BucketLimits{256, 2048});
    const TreePlan plan(4, ranks().size());
    FlightRecorder recorder(folder.path(), ranks().rank(), ranks().size());
    {
        const auto exchange = recorded(make_exchange(ranks(), layout, plan), layout, recorder);
        for (int step = 0; step < 2; ++step) {
            for (std::size_t b = 0; b < layout.bucket_count(); ++b) exchange->arrive(b);
            for (std::size_t b = 0; b < layout.bucket_count(); ++b)
                EXPECT_NE(exchange->reduce(b, Wait::yes), nullptr);
            exchange->publish();
        }
    }
    const RankTrace trace = read_rank_trace(ring_path(folder.path(), ranks().rank()));
    const std::size_t calls = layout.bucket_count() + 1;
    EXPECT_EQ(trace.entries.size(), 2 * calls);
    for (std::size_t i = 0; i < trace.entries.size(); ++i) {
        const FlightEntry& entry = trace.entries[i];
        EXPECT_EQ(entry.seq, i + 1);
        EXPECT_GT(entry.ended_s, 0);
        const bool is_publish = i % calls == layout.bucket_count();
        EXPECT_EQ(entry.call.op, is_publish ? FlightOp::publish : FlightOp::reduce);
        EXPECT_EQ(entry.call.bucket, is_publish ? -1 : static_cast<int>(i % calls));
    }
}

TEST(Recorded, NotesWhatGoesThroughCollectives) {
    const test::TempDir folder;
    FlightRecorder recorder(folder.path(), ranks().rank(), ranks().size());
    const auto all = recorded(make_collectives(Communicator()), recorder, "metrics");
    std::vector<double> data(10);
    all->all_reduce(data.data(), 10, DataType::float64);
    all->broadcast(data.data(), 24, 0);
    all->barrier();
    const RankTrace trace = read_rank_trace(ring_path(folder.path(), ranks().rank()));
    EXPECT_EQ(trace.channels, std::vector<std::string>{"metrics"});
    ASSERT_EQ(trace.entries.size(), 3u);
    EXPECT_EQ(trace.entries[0].call,
              (FlightCall{.op = FlightOp::all_reduce, .type = DataType::float64, .bytes = 80}));
    EXPECT_EQ(trace.entries[1].call.bytes, 24u);
    EXPECT_EQ(trace.entries[2].call.op, FlightOp::barrier);
}

}  // namespace
}  // namespace lockstep
