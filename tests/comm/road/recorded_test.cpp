// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/recorded.hpp"

#include "lockstep/run/rank_trace.hpp"

#include "support/mpi_test.hpp"
#include "support/unit.hpp"

#include <vector>

namespace lockstep {
namespace {

using test::ranks;

TEST(MakeExchange, NamesTheRankWithAnotherLayout) {
    LOCKSTEP_NEEDS_RANKS(2);
    const std::vector<std::size_t> counts = {1000, ranks().rank() == 1 ? 18u : 17u};
    const FlatLayout layout(counts, 4);
    EXPECT_THAT(caught_text([&] { make_exchange(ranks(), layout, TreePlan(4, ranks().size())); }),
                AllOf(HasSubstr("E662: "), HasSubstr("rank 1 differs from rank")));
}

TEST(Recorded, NotesWhatGoesThroughAnExchange) {
    const TempDir folder;
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

}  // namespace
}  // namespace lockstep
