// SPDX-License-Identifier: Apache-2.0
// The exchange between GPUs with ranks that are threads: any number of them, who waits for whom,
// what travels, and every failure.
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/clock.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/nccl_inside.hpp"
#include "support/unit.hpp"

#include <atomic>
#include <map>

namespace {

using namespace lockstep;
using namespace lockstep::test;

const std::vector<std::size_t> exchange_counts = {200, 40, 1, 0, 330};

FlatLayout small_layout(std::size_t limit = 1024) {
    return {exchange_counts, 20, BucketLimits{limit, 2 * limit}};
}

class GpuExchangeTest : public FakeRanksTest {
  protected:
    /// Bytes that all ranks together send, and the most of any.
    struct Sent {
        std::size_t all = 0, most = 0;
    };
    using Body = std::function<void(const FakeRank&, GpuSteps&)>;

    /// What each rank threw in `body`, with an exchange of its own.
    Errors run_with(const FlatLayout& layout, const TreePlan& plan, const Body& body) {
        return run(plan.ranks(), [&](const FakeRank& rank) {
            NcclCommunicator communicator = rank.communicator();
            GpuSteps gpu(rank, communicator, layout, plan);
            body(rank, gpu);
        });
    }
    void succeed_with(const FlatLayout& layout, const TreePlan& plan, const Body& body) {
        expect_no_errors(run_with(layout, plan, body));
    }
    Sent sent_in_a_step(const FlatLayout& layout, const TreePlan& plan) {
        Sent sent;
        expect_no_errors(run(plan.ranks(), [&](const FakeRank& rank) {
            NcclCommunicator communicator = rank.communicator();
            rank.bootstrap.gather_within("the first sum is over", 20);
            if (rank.rank == 0) nccl.take_sent_bytes();
            rank.bootstrap.gather_within("nothing is under way", 20);
            GpuSteps gpu(rank, communicator, layout, plan);
            gpu.run(0);
            gpu.wait();
            rank.bootstrap.gather_within("all is sent", 20);
            if (rank.rank != 0) return;
            for (const auto& [sender, bytes] : nccl.take_sent_bytes()) {
                sent.all += bytes;
                sent.most = std::max(sent.most, bytes);
            }
        }));
        return sent;
    }
    /// The values of all steps on each rank, one rank after the other.
    std::vector<Floats> values_of(const FlatLayout& layout,
                                  const TreePlan& plan,
                                  const std::vector<std::uint64_t>& steps) {
        std::vector<std::vector<std::shared_ptr<const Floats>>> read(
            static_cast<std::size_t>(plan.ranks()));
        succeed_with(layout, plan, [&](const FakeRank& rank, GpuSteps& gpu) {
            for (const std::uint64_t step : steps) {
                gpu.run(step);
                read[static_cast<std::size_t>(rank.rank)].push_back(gpu.read_values());
            }
            gpu.wait();
        });
        std::vector<Floats> values;
        for (const auto& of_rank : read)
            for (const auto& floats : of_rank) values.push_back(*floats);
        EXPECT_EQ(values.size(), read.size() * steps.size());
        return values;
    }
    /// Leaves of one rank. Added, as backward does: a slot that is not cleared shows.
    static void add_leaves(GpuSteps& gpu,
                           Reducer& reducer,
                           const FlatLayout& layout,
                           const LeafRange& leaves,
                           std::uint64_t step) {
        reducer.begin_step();
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            gpu.then([&layout, slot = reducer.begin_leaf(), step, leaf] {
                for (std::size_t i = 0; i < layout.size(); ++i)
                    slot[i] += hard_value(step, leaf, i);
            });
            for (std::size_t tensor = exchange_counts.size(); tensor-- > 0;) reducer.add(tensor);
            reducer.end_leaf();
        }
        reducer.finish();
    }
    /// What each rank threw in one step.
    Errors errors_of_a_step(int ranks) {
        return run_with(small_layout(), TreePlan(8, ranks), [](const FakeRank&, GpuSteps& gpu) {
            gpu.run(0);
            gpu.wait();
        });
    }
};

TEST_F(GpuExchangeTest, HasTheBitsOfTheWholeTreeForAnyNumberOfRanks) {
    const FlatLayout layout = small_layout();
    for (const int virtual_ranks : {1, 8, 16, 64}) {
        const Floats expected = whole_tree(layout, virtual_ranks, 5);
        for (const int ranks : {1, 2, 3, 5, 6, 7, 8, 13, 16}) {
            if (ranks > virtual_ranks) continue;
            for (const Floats& values : values_of(layout, TreePlan(virtual_ranks, ranks), {5}))
                EXPECT_TRUE(same_bits(values, expected))
                    << ranks << " ranks, " << virtual_ranks << " leaves";
        }
    }
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(GpuExchangeTest, HasTheBitsOfTheWholeTreeInBucketsOfAnySizeStepAfterStep) {
    for (const std::size_t limit : {64u, 300u, 5000u, 1u << 20})
        for (const int ranks : {1, 4, 5}) {
            const FlatLayout layout = small_layout(limit);
            const auto values = values_of(layout, TreePlan(64, ranks), {0, 1, 2});
            for (std::size_t i = 0; i < values.size(); ++i)
                EXPECT_TRUE(same_bits(values[i], whole_tree(layout, 64, i % 3)))
                    << ranks << " ranks, buckets of " << limit << ", step " << i % 3;
        }
}

// Sums inside nodes of two first, and then of four, where as many ranks are there.
TEST_F(GpuExchangeTest, HasTheBitsOfTheWholeTreeOnSeveralNodes) {
    const FlatLayout layout = small_layout();
    const Floats expected = whole_tree(layout, 64, 1);
    for (const int of_a_node : {2, 4}) {
        vary = [=](int rank, auto&, NcclOptions& mine) {
            mine.environment = Environment(std::map<std::string, std::string>{
                {"NCCL_HOSTID", std::to_string(rank / of_a_node)}});
        };
        for (const int ranks : {2, 3, 4, 5, 8})
            for (const Floats& values : values_of(layout, TreePlan(64, ranks), {1}))
                EXPECT_TRUE(same_bits(values, expected))
                    << ranks << " ranks, " << of_a_node << " to a node";
    }
}

TEST_F(GpuExchangeTest, HasOtherBitsWithPlainSums) {
    const FlatLayout layout = small_layout();
    for (const int ranks : {1, 2, 3, 8}) {
        const TreePlan plan(64, ranks, Summation::plain);
        const Floats values = values_of(layout, plan, {0}).front();
        EXPECT_FALSE(same_bits(values, whole_tree(layout, 64, 0))) << ranks;
        if (ranks > 2) continue;  // two numbers have one sum, whatever NCCL does
        Floats sums(layout.size());
        for (const Partial& partial : plan.partials()) {
            const Floats partials = slot_values(layout, plan, partial, 0);
            std::ranges::transform(partials, sums, sums.begin(), std::plus<>());
        }
        EXPECT_TRUE(same_bits(values, sums)) << ranks;
    }
}

TEST_F(GpuExchangeTest, SumsExactlyWhereNoOrderMatters) {
    const FlatLayout layout = small_layout(1000);
    for (const Summation summation : {Summation::tree, Summation::plain})
        for (const int ranks : {1, 3, 8}) {
            const TreePlan plan(64, ranks, summation);
            succeed_with(layout, plan, [&](const FakeRank& rank, GpuSteps& gpu) {
                for (const Partial& partial : plan.partials_of_rank(rank.rank))
                    gpu.then([&, to = gpu.exchange().slot(partial.slot)] {
                        std::fill_n(to, layout.size(), static_cast<float>(rank.rank + 1));
                    });
                gpu.arrive();
                gpu.reduce();
                gpu.exchange().publish();
                const auto values = gpu.read_values();
                gpu.wait();
                float sum = 0;
                for (const Partial& partial : plan.partials())
                    sum += static_cast<float>(partial.rank + 1);
                EXPECT_EQ(std::ranges::count(*values, sum), std::ssize(*values));
            });
        }
}

// Leaf by leaf into slots that the reducer clears and merges, as training does.
TEST_F(GpuExchangeTest, IsDrivenByTheReducerAsTheCpusExchangesAre) {
    const FlatLayout layout = small_layout();
    for (const int ranks : {1, 3, 8}) {
        const TreePlan plan(64, ranks);
        succeed_with(layout, plan, [&](const FakeRank& rank, GpuSteps& gpu) {
            GpuExchange& exchange = gpu.exchange();
            Reducer reducer(layout, plan, rank.rank, exchange);
            for (std::uint64_t step = 0; step < 2; ++step) {
                add_leaves(gpu, reducer, layout, leaves_of(rank.rank, ranks, 64), step);
                for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
                    const FloatRange own = exchange.own_stripe(b);
                    exchange.memory().copy(
                        exchange.values() + own.begin, reducer.reduced(b), own.size());
                }
                exchange.publish();
                Floats values(layout.size());
                exchange.memory().wait();
                exchange.memory().copy(values.data(), exchange.values(), values.size());
                exchange.memory().wait();
                EXPECT_TRUE(same_bits(values, whole_tree(layout, 64, step))) << "step " << step;
            }
        });
    }
}

TEST_F(GpuExchangeTest, BeginsWithZerosAndPublishesValuesBeforeAnyStep) {
    const FlatLayout layout = small_layout(300);
    for (const int ranks : {1, 3, 8})
        succeed_with(layout, TreePlan(64, ranks), [&](const FakeRank& rank, GpuSteps& gpu) {
            EXPECT_EQ(gpu.exchange().name(), "nccl");
            const auto zeros = gpu.read_values();
            for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
                const FloatRange own = gpu.exchange().own_stripe(b);
                EXPECT_EQ(own, layout.stripe(b, rank.rank, ranks));
                gpu.then([to = gpu.exchange().values() + own.begin, own] {
                    std::fill_n(to, own.size(), 7.0f);
                });
            }
            gpu.exchange().publish();
            const auto values = gpu.read_values();
            gpu.wait();
            EXPECT_EQ(std::ranges::count(*zeros, 0.0f), std::ssize(*zeros));
            EXPECT_EQ(std::ranges::count(*values, 7.0f), std::ssize(*values));
            EXPECT_GE(gpu.exchange().take_wait_s(), 0.0);
        });
}

TEST_F(GpuExchangeTest, WaitsForTheCallersStreamAndNotInTheHost) {
    const FlatLayout layout = small_layout();
    succeed_with(layout, TreePlan(8, 2), [&](const FakeRank& rank, GpuSteps& gpu) {
        std::atomic<bool> may_compute = false;
        rank.cuda.enqueue(gpu.caller(), [&] { return may_compute.load(); });
        gpu.fill(1);
        gpu.arrive();
        EXPECT_EQ(gpu.exchange().reduce(0, Wait::no), nullptr);
        gpu.reduce();
        gpu.exchange().publish();
        const auto values = gpu.read_values();
        EXPECT_EQ(values->front(), 0.0f);
        may_compute = true;
        gpu.wait();
        EXPECT_TRUE(same_bits(*values, whole_tree(layout, 8, 1)));
    });
}

TEST_F(GpuExchangeTest, GivesASumWithoutWaitingOnceItIsThere) {
    const FlatLayout layout = small_layout();
    succeed_with(layout, TreePlan(4, 3), [&](const FakeRank&, GpuSteps& gpu) {
        gpu.fill(2);
        gpu.arrive();
        const Floats expected = whole_tree(layout, 4, 2);
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const float* sum = nullptr;
            while (sum == nullptr) sum = gpu.exchange().reduce(b, Wait::no);
            const FloatRange own = gpu.exchange().own_stripe(b);
            EXPECT_TRUE(std::equal(sum, sum + own.size(), expected.data() + own.begin));
        }
        gpu.exchange().publish();
        gpu.wait();
    });
}

TEST_F(GpuExchangeTest, RunsAtMostOneStepAhead) {
    options.collective_deadline_s = options.abort_limit_s = 1;
    std::atomic<int> steps_ahead = 0;
    const auto errors = run_with(small_layout(), TreePlan(8, 1), [&](auto& rank, GpuSteps& gpu) {
        rank.cuda.enqueue(gpu.caller(), [] { return false; });
        for (; steps_ahead < 5; ++steps_ahead) gpu.run(0);
    });
    EXPECT_EQ(steps_ahead, 1);
    ASSERT_EQ(code_of(errors[0]), "E678");
    EXPECT_THAT(errors[0]->text(), HasSubstr("'publication' of communicator 'gradients'"));
    EXPECT_GT(cuda.live_allocations(), 0u);  // the stream never ended: nothing is freed under it
}

TEST_F(GpuExchangeTest, MayBeDroppedInTheMiddleOfAStep) {
    const FlatLayout layout = small_layout();
    expect_no_errors(run(4, [&](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        for (int round = 0; round < 3; ++round) {
            GpuSteps gpu(rank, communicator, layout, TreePlan(8, 4));
            gpu.exchange().arrive(0);
            if (round > 0) gpu.exchange().reduce(0, Wait::yes);
            if (round > 1) gpu.exchange().arrive(1);
        }
    }));
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(GpuExchangeTest, SendsWhatAReduceScatterAndAnAllGatherSend) {
    const std::vector<std::size_t> large = {9000, 777, 20001, 5};
    const FlatLayout layout(large, 33, BucketLimits{16384, 32768});
    for (const int ranks : {2, 4, 8}) {
        const Sent by_ring = sent_in_a_step(layout, TreePlan(8, ranks, Summation::plain));
        for (const int virtual_ranks : {8, 64}) {
            const Sent by_tree = sent_in_a_step(layout, TreePlan(virtual_ranks, ranks));
            const auto bound = [](std::size_t bytes) { return static_cast<double>(bytes) * 1.02; };
            EXPECT_GT(by_tree.all, 0u);
            EXPECT_LE(static_cast<double>(by_tree.all), bound(by_ring.all));
            EXPECT_LE(static_cast<double>(by_tree.most), bound(by_ring.most));
            // And a ring's own bound: each rank sends 2 (P - 1) / P of all floats.
            EXPECT_LE(by_tree.all,
                      2 * static_cast<std::size_t>(ranks - 1) * layout.size() * sizeof(float));
        }
    }
}

TEST_F(GpuExchangeTest, RefusesRanksWithOtherLayoutsOrPlans) {
    const auto errors = run(3, [](const FakeRank& rank) {
        NcclCommunicator communicator = rank.communicator();
        const TreePlan plan(rank.rank == 1 ? 8 : 4, 3);
        make_nccl_exchange(communicator, small_layout(), plan, rank.cuda.make_stream());
    });
    for (const auto& error : errors)
        EXPECT_THAT(text_of(error), has("error E662: rank 1 differs from ranks 0,2", "V = 4"));
}

TEST_F(GpuExchangeTest, GivesUpAGroupThatNeverEnds) {
    nccl.hanging_op = 1;
    options.collective_deadline_s = 1;
    const double begin = now_s();
    const auto errors = errors_of_a_step(2);
    EXPECT_LT(now_s() - begin, 15);
    const auto late = std::ranges::find(errors, "E678", code_of);
    ASSERT_NE(late, errors.end());
    EXPECT_THAT((*late)->text(), HasSubstr("'exchange' of communicator 'gradients' did not end"));
    EXPECT_THAT((*late)->text(), HasSubstr("aborted 'gradients'"));
    for (const auto& error : errors) EXPECT_THAT(code_of(error), AnyOf("E678", "E682"));
}

TEST_F(GpuExchangeTest, SeesAStuckRankInTheNextStep) {
    nccl.hanging_op = 2;
    options.collective_deadline_s = 1;
    const auto errors = run_with(small_layout(), TreePlan(8, 2), [](auto&, GpuSteps& gpu) {
        for (std::uint64_t step = 0; step < 2; ++step) gpu.run(step);
        ADD_FAILURE() << "nobody noticed";
    });
    for (const auto& error : errors) EXPECT_THAT(code_of(error), AnyOf("E678", "E682"));
}

TEST_F(GpuExchangeTest, EndsAllRanksWhereNcclFailsOnOne) {
    nccl.failing_op = 2;
    const auto errors = errors_of_a_step(3);
    EXPECT_EQ(code_of(errors[1]), "E677");
    EXPECT_EQ(code_of(errors[0]), "E682");
    EXPECT_EQ(code_of(errors[2]), "E682");
}

TEST_F(GpuExchangeTest, EndsAllRanksWhereAKernelCannotBeLaunched) {
    cuda.gpu_refusing_kernels = "0000:01:00.0";
    const auto errors = errors_of_a_step(3);
    EXPECT_EQ(code_of(errors[1]), "E681");
    EXPECT_THAT(text_of(errors[1]), HasSubstr("the kernel of the tree's sum failed: a fake error"));
    EXPECT_EQ(code_of(errors[0]), "E682");
    EXPECT_EQ(code_of(errors[2]), "E682");
}

TEST_F(GpuExchangeTest, EndsWithinTheDeadlineWhereARankDied) {
    options.collective_deadline_s = 1;
    const double begin = now_s();
    const auto errors = run_with(small_layout(), TreePlan(8, 3), [](auto& rank, GpuSteps& gpu) {
        gpu.fill(0);
        gpu.exchange().arrive(0);
        if (rank.rank == 2) throw Error("E405", "the disk is full");
        for (std::size_t b = 1; b < small_layout().bucket_count(); ++b) gpu.exchange().arrive(b);
        gpu.reduce();
        gpu.exchange().publish();
        gpu.wait();
    });
    EXPECT_LT(now_s() - begin, 15);
    EXPECT_EQ(code_of(errors[2]), "E405");
    for (const int rank : {0, 1})
        EXPECT_THAT(code_of(errors[static_cast<std::size_t>(rank)]), AnyOf("E678", "E682"));
}

}  // namespace
