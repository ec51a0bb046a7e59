// SPDX-License-Identifier: Apache-2.0
// The start, the end and the failures of a communicator, against an NCCL that is made up.
#include "lockstep/comm/nccl_communicator.hpp"

#include "lockstep/comm/gpu_selection.hpp"
#include "lockstep/core/clock.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/cuda_api.hpp"
#include "nccl/nccl_group.hpp"
#include "nccl/nccl_inside.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <thread>

#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;
using enum lockstep::NcclState;
using NcclBufferTest = FakeRanksTest;

GpuSteps make_steps(const FakeRank& rank, NcclCommunicator& communicator) {
    const std::vector<std::size_t> counts = {40};
    return {rank, communicator, {counts, 4}, TreePlan(2, communicator.size())};
}

/// One step of an exchange, waited for.
void sum_once(GpuSteps steps) {
    steps.run(0);
    steps.wait();
}

class NcclCommunicatorTest : public FakeRanksTest {
  protected:
    /// Two ranks' errors of a sum that fails, beside "metrics", which is in that state then.
    Errors fail_beside_metrics(NcclState metrics_then) {
        return run(2, [=](const FakeRank& rank) {
            NcclCommunicator metrics = rank.communicator("metrics");
            NcclCommunicator gradients = rank.communicator("gradients");
            try {
                sum_once(make_steps(rank, gradients));
            } catch (const Error&) {
                EXPECT_EQ(gradients.state(), aborted);
                EXPECT_EQ(metrics.state(), metrics_then);
                EXPECT_EQ(rank.runtime->is_wedged(), metrics_then == aborting);
                throw;
            }
        });
    }
};

TEST_F(NcclCommunicatorTest, StartsAfterAnyNumberOfPolls) {
    for (const int polls : {0, 1, 50}) {
        nccl.polls_to_start = polls;
        expect_no_errors(run(3, [](const FakeRank& rank) {
            NcclCommunicator communicator = rank.communicator();
            EXPECT_EQ(communicator.state(), ready);
            EXPECT_EQ(communicator.rank(), rank.rank);
            EXPECT_EQ(communicator.size(), 3);
            communicator.close();
            EXPECT_EQ(communicator.state(), destroyed);
        }));
    }
}

TEST_F(NcclCommunicatorTest, MarksThePhasesOfItsStart) {
    run(2, [](const FakeRank& rank) {
        const NcclCommunicator communicator = rank.communicator();
        std::vector<std::string> names;
        for (const auto& phase : communicator.start_phases()) {
            names.push_back(phase.name);
            EXPECT_GE(phase.seconds, 0);
        }
        EXPECT_THAT(names, ElementsAre("facts", "unique id", "barrier", "init", "first sum"));
    });
}

TEST_F(NcclCommunicatorTest, FinalizesBeforeItDestroys) {
    started(1);
    EXPECT_THAT(nccl.calls(),
                ElementsAre("init gradients", "finalize gradients", "destroy gradients"));
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(NcclCommunicatorTest, NamesThePhaseAndTheRanksOfAStartThatHangs) {
    nccl.never_ready = {1};
    options.init_deadline_s = 1;
    const auto errors = started(3);
    // Each either ran out of time itself or heard it from another that did.
    EXPECT_THAT(code_of(errors[1]), AnyOf("E676", "E682"));
    const auto late = std::ranges::find(errors, "E676", code_of);
    ASSERT_NE(late, errors.end());
    EXPECT_THAT(text_of(*late),
                has("communicator 'gradients' was not ready within 1.0s",
                    "'init'",
                    "'first sum'",
                    "aborted 'gradients'"));
}

TEST_F(NcclCommunicatorTest, NamesARankThatNeverCame) {
    options.init_deadline_s = 1;
    const auto errors = run(3, [](const FakeRank& rank) {
        if (rank.rank != 2) rank.communicator();
    });
    EXPECT_THAT(text_of(errors[0]),
                HasSubstr("error E630: rank 2 did not come to 'facts of NCCL communicator "
                          "'gradients'' within"));
    EXPECT_TRUE(nccl.calls().empty());
}

TEST_F(NcclCommunicatorTest, TellsAllWhenOneHasNoGpu) {
    vary = [](int rank, auto&, auto& mine) { mine.device = rank == 1 ? 7 : 0; };
    const auto errors = started(2);
    EXPECT_THAT(text_of(errors[1]), HasSubstr("error E670: no GPU 7 on"));
    EXPECT_THAT(text_of(errors[0]), HasSubstr("error E682: rank 1 gave up: no GPU 7 on"));
}

TEST_F(NcclCommunicatorTest, RefusesTwoRanksOnOneGpuBeforeNcclIsAsked) {
    vary = [](int, auto& gpu, auto&) { gpu.uuid = "GPU-one"; };
    for (const auto& error : started(2))
        EXPECT_THAT(text_of(error), HasSubstr("error E673: ranks 0 and 1 use the same GPU"));
    EXPECT_TRUE(nccl.calls().empty());
}

TEST_F(NcclCommunicatorTest, RefusesSettingsThatDifferOnAllRanks) {
    vary = [](int rank, auto&, auto& mine) {
        mine.environment = Environment(
            std::map<std::string, std::string>{{"NCCL_ALGO", rank == 0 ? "Tree" : "Ring"}});
    };
    for (const auto& error : started(2))
        EXPECT_THAT(text_of(error),
                    has("error E675: ranks have different NCCL settings: "
                        "NCCL_ALGO is ",
                        "'Tree' on rank 0",
                        "'Ring' on rank 1"));
}

TEST_F(NcclCommunicatorTest, LetsRanksShareAGpuWhereNcclTakesThemForHosts) {
    vary = [](int rank, auto& gpu, auto& mine) {
        gpu.uuid = "GPU-one";
        mine.environment = Environment({{"NCCL_HOSTID", std::to_string(rank)}});
    };
    expect_no_errors(started(2));
}

TEST_F(NcclCommunicatorTest, ShowsNcclsOwnWordsAndReportWhenInitFailsAtOnce) {
    nccl.init_result = nccl::system_error;
    const auto errors = started(1);
    EXPECT_THAT(text_of(errors[0]),
                has("error E677: ncclCommInitRankConfig failed",
                    "NCCL says: the fake's last words",
                    "NCCL_SOCKET_IFNAME"));
    vary = [](int, auto&, auto& mine) { mine.report = "/runs/a/nccl-00000.log"; };
    EXPECT_THAT(text_of(started(1)[0]), HasSubstr("NCCL's own report: /runs/a/nccl-00000.log"));
}

TEST_F(NcclCommunicatorTest, RefusesAWrongFirstSum) {
    nccl.wrong_by = 1;
    for (const auto& error : started(2))
        EXPECT_THAT(text_of(error), AnyOf(HasSubstr("E679"), HasSubstr("E682")));
    EXPECT_EQ(calls_of("abort gradients"), 2);
    EXPECT_EQ(calls_of("finalize gradients"), 0);
}

TEST_F(NcclCommunicatorTest, StartsWithManyIdsOnlyWhereTheLibraryCan) {
    // 300 ranks would be 300 threads: the choice is tested below, the calls here.
    nccl.version = 21900;
    started(2);
    EXPECT_EQ(nccl.used_ids(), 1);
}

TEST_F(NcclCommunicatorTest, AbortsAllCommunicatorsWhenOneHasAnError) {
    nccl.failing_op = 1;
    const auto errors = fail_beside_metrics(aborted);
    EXPECT_THAT(text_of(errors[1]), has("error E677", "another rank ended or lost its network"));
    EXPECT_THAT(text_of(errors[0]), HasSubstr("error E682: rank 1 gave up"));
}

TEST_F(NcclCommunicatorTest, RevokesBeforeItAbortsWhereItCan) {
    nccl.failing_op = 1;
    for (const int version : {22809, 22500}) {
        nccl.version = version;
        run(2, [](const FakeRank& rank) {
            NcclCommunicator gradients = rank.communicator();
            sum_once(make_steps(rank, gradients));
        });
    }
    const auto calls = nccl.calls();
    EXPECT_EQ(calls_of("revoke gradients"), 2);
    EXPECT_EQ(calls_of("abort gradients"), 4);
    EXPECT_LT(std::ranges::find(calls, "revoke gradients"),
              std::ranges::find(calls, "abort gradients"));
}

TEST_F(NcclCommunicatorTest, AbortsTheOthersWithinTheLimitWhenOneAbortHangs) {
    nccl.hanging_op = 1;
    nccl.stuck_abort = {"metrics"};
    options.collective_deadline_s = options.abort_limit_s = 1;
    const double begin = now_s();
    const auto errors = fail_beside_metrics(aborting);
    EXPECT_LT(now_s() - begin, 9);
    for (const auto& error : errors)
        EXPECT_THAT(text_of(error),
                    HasSubstr("aborted 'gradients'; 'metrics' hang in their abort within 1.0s"));
}

TEST_F(NcclCommunicatorTest, StopsWaitingWhenAnotherThreadAborts) {
    nccl.hanging_op = 1;
    const auto errors = run(2, [](const FakeRank& rank) {
        NcclCommunicator gradients = rank.communicator();
        GpuSteps steps = make_steps(rank, gradients);
        rank.bootstrap.gather_within("all have their exchange", 10);
        std::jthread watchdog([&] { rank.runtime->abort_all(5); });
        try {
            sum_once(std::move(steps));
        } catch (const Error&) {
            watchdog.join();
            EXPECT_EQ(gradients.state(), aborted);
            throw;
        }
    });
    for (const auto& error : errors)
        EXPECT_THAT(text_of(error), HasSubstr("error E680: communicator 'gradients' was aborted"));
}

TEST_F(NcclCommunicatorTest, AbortsInsteadOfFinalizingWhenAnExceptionIsUnderWay) {
    const auto errors = run(2, [](const FakeRank& rank) {
        NcclCommunicator gradients = rank.communicator();
        rank.bootstrap.gather_within("all are ready", 10);
        throw Error("E405", "the disk is full");
    });
    EXPECT_EQ(code_of(errors[0]), "E405");
    EXPECT_EQ(calls_of("abort gradients"), 2);
    EXPECT_EQ(calls_of("finalize gradients"), 0);
}

TEST_F(NcclCommunicatorTest, CanBeMoved) {
    expect_no_errors(run(1, [](const FakeRank& rank) {
        NcclCommunicator first = rank.communicator();
        NcclCommunicator second = std::move(first);
        sum_once(make_steps(rank, second));
    }));
}

constexpr std::array all_states = {
    unset, initializing, ready, failed, aborting, aborted, finalizing, finalized, destroyed};

TEST(NcclState, NeverGoesBackToReadyOrStaysWhereItIsAndEndsInAbortedOrDestroyed) {
    for (const NcclState from : all_states) {
        EXPECT_FALSE(may_follow(from, from)) << name_of(from);
        EXPECT_EQ(may_follow(from, ready), from == initializing) << name_of(from);
        EXPECT_FALSE(may_follow(from, unset)) << name_of(from);
        const auto may_go_to = [&](NcclState to) { return may_follow(from, to); };
        EXPECT_EQ(std::ranges::none_of(all_states, may_go_to), from == aborted || from == destroyed)
            << name_of(from);
        const bool has_communicator = from == initializing || from == ready || from == failed ||
                                      from == finalizing || from == finalized;
        EXPECT_EQ(may_follow(from, aborting), has_communicator) << name_of(from);
    }
    EXPECT_FALSE(may_follow(failed, finalizing));
}

RC_GTEST_PROP(UniqueIds, AreAsManyAsTheirMakersAndEvenlySpread, ()) {
    const int ranks = *rc::gen::inRange(1, 20000);
    const int ids = unique_id_count(ranks, true);
    const auto makers = unique_id_makers(ranks, ids);
    RC_ASSERT(static_cast<int>(makers.size()) == ids);
    RC_ASSERT(makers.front() == 0);
    for (std::size_t i = 0; i < makers.size(); ++i) {
        const int end = i + 1 < makers.size() ? makers[i + 1] : ranks;
        const int served = end - makers[i];
        RC_ASSERT(served == ranks / ids || served == ranks / ids + 1);
        if (ids > 1) RC_ASSERT(served <= 128);
    }
}

TEST(UniqueIds, AreOneUpTo256RanksAndForOldLibraries) {
    EXPECT_EQ(unique_id_count(1, true), 1);
    EXPECT_EQ(unique_id_count(256, true), 1);
    EXPECT_EQ(unique_id_count(257, true), 3);
    EXPECT_EQ(unique_id_count(4096, false), 1);
    EXPECT_EQ(unique_id_makers(7, 3), (std::vector<int>{0, 3, 5}));
}

/// Sums a buffer of 2 integers, each its rank + 1; returns whether it was registered.
bool sum_in_buffer(const FakeRank& rank) {
    NcclCommunicator communicator = rank.communicator();
    NcclBuffer first(communicator, 16);
    const NcclBuffer buffer = std::move(first);
    auto* numbers = static_cast<std::int64_t*>(buffer.data());
    std::fill_n(numbers, 2, rank.rank + 1);
    NcclCommunicator::Inside& inside = communicator.inside();
    NcclGroup group(inside);
    group.add_up({numbers, 2});
    group.end("a sum");
    inside.wait_for(*inside.end_of("a sum", {}));
    EXPECT_EQ(numbers[1], 3);
    return buffer.is_registered();
}

TEST_F(NcclBufferTest, IsRegisteredOnAllRanksWhereNcclCanOrIsPlainMemory) {
    run(2, [](const FakeRank& rank) { EXPECT_TRUE(sum_in_buffer(rank)); });
    EXPECT_EQ(calls_of("register gradients"), 2);
    EXPECT_EQ(calls_of("deregister gradients"), 2);
    nccl.refusing_registration = 1;
    run(2, [](const FakeRank& rank) { EXPECT_FALSE(sum_in_buffer(rank)); });
    EXPECT_EQ(calls_of("deregister gradients"), 3) << "of the rank that could";
    nccl.refusing_registration = {};
    nccl.version = 21800;
    run(2, [](const FakeRank& rank) { EXPECT_FALSE(sum_in_buffer(rank)); });
    EXPECT_EQ(cuda.live_allocations(), 0u);
}

TEST_F(NcclBufferTest, LocksPagesOfTheHostAsLongAsTheyAreUsedOrSaysWhichCallDidNot) {
    std::vector<std::byte> memory(4096);
    run(1, [&](const FakeRank& rank) {
        const LockedPages locked(gpu_page_lock(rank.runtime), memory);
        EXPECT_EQ(cuda.locked, (std::map<const void*, std::size_t>{{memory.data(), 4096}}));
    });
    EXPECT_TRUE(cuda.locked.empty());
    cuda.is_refusing_locks = true;
    const auto errors =
        run(1, [&](const FakeRank& rank) { LockedPages(gpu_page_lock(rank.runtime), memory); });
    EXPECT_THAT(text_of(errors[0]), HasSubstr("error E681: cudaHostRegister failed: a fake error"));
}

TEST(DescribeGpus, SaysThatThereIsNoDriver) {
    if (gpu_driver_fault().empty()) GTEST_SKIP() << "SKIPPED: there is a driver here";
    EXPECT_EQ(describe_gpus(), "none (no driver)");
}

}  // namespace
