// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/root_cause.hpp"

#include "lockstep/core/json.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/verdict.hpp"

#include "run/log_lines.hpp"
#include "support/unit.hpp"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

using test::LogFolder;

class ExplainEnd : public InFolder {
  protected:
    int explain(const std::function<int()>& launch) {
        const LaunchedRun run{[this] { return newest_; },
                              [this](const Error& error) { failure_ = error.code(); }};
        return explain_end(run, launch, folder_.path() / "root");
    }

    // What ranks do: their records appear. The dead have noted `signal`.
    void start(const std::string& name, int living, int dead, int signal = 0) {
        newest_ = folder_ / name;
        fs::create_directories(newest_);
        const int ranks = living + dead;
        for (int rank = 0; rank < living; ++rank)
            recorders_.push_back(std::make_unique<FlightRecorder>(newest_, rank, ranks, small_));
        for (int rank = living; rank < ranks; ++rank) {
            const pid_t child = ::fork();
            if (child == 0) {
                FlightRecorder recorder(newest_, rank, ranks, small_);
                recorder.signal_word()->store(static_cast<std::uint64_t>(signal));
                ::_exit(0);
            }
            ::waitpid(child, nullptr, 0);
        }
    }

    static int fall() { throw Error("E612", "killed"); }

    // Of a launch that does `work` and falls.
    Error error_after(const std::function<void()>& work) {
        return test::error_of([&] {
            explain([&] {
                work();
                return fall();
            });
        });
    }

    static constexpr FlightSettings small_{.entries = 64};
    fs::path newest_;
    std::string failure_;
    std::vector<std::unique_ptr<FlightRecorder>> recorders_;
};

TEST_F(ExplainEnd, GivesBackWhatNeedsNoWord) {
    for (const int code : {0, 75, 130})
        EXPECT_EQ(explain([&] {
                      start("known" + std::to_string(code), 1, 1);
                      return code;
                  }),
                  code);
    EXPECT_EQ(explain([] { return 70; }), 70) << "nothing has started";
    EXPECT_EQ(caught_code([&] { explain(fall); }), "E612");
    EXPECT_EQ(failure_, "");
}

TEST_F(ExplainEnd, NamesTheRankThatIsGone) {
    const Error error = error_after([&] { start("i1", 1, 1); });
    EXPECT_EQ(error.code(), "E660");
    EXPECT_THAT(error.what(), HasSubstr("rank 1"));
    EXPECT_EQ(failure_, "E660");
    EXPECT_EQ(read_verdict(newest_)->culprits, std::vector<int>{1});
}

TEST_F(ExplainEnd, NamesTheOnlyRankIfItCrashed) {
    const Error error = error_after([&] { start("i1", 0, 1, SIGSEGV); });
    EXPECT_EQ(error.code(), "E660");
    EXPECT_THAT(error.what(), HasSubstr("crashed with signal 11"));
}

TEST_F(ExplainEnd, RanksThatHaveSpokenAreBelieved) {
    EXPECT_EQ(explain([&] {
                  start("i1", 1, 1);
                  claim_verdict(newest_, {.trouble = Trouble::slow_rank});
                  return 1;
              }),
              76);
    EXPECT_EQ(failure_, "");
}

// The launcher was killed: it waited for a host behind a firewall.
TEST_F(ExplainEnd, SpeaksForAHostThatNobodyHears) {
    const Error error = error_after([&] {
        start("i1", 2, 0);
        claim_verdict(newest_, {.trouble = Trouble::network_slow, .what = "said elsewhere"});
        Json said = read_json(verdict_path(newest_), 1 << 20);
        said["host"] = "elsewhere";
        write_file_atomically(verdict_path(newest_), said.dump());
        fs::last_write_time(verdict_path(newest_),
                            fs::file_time_type::clock::now() - std::chrono::seconds(4));
    });
    EXPECT_EQ(error.code(), "E660");
    EXPECT_EQ(error.what(), std::string("said elsewhere"));
    EXPECT_EQ(error.exit_code(), ExitCode::peer_lost);
}

TEST_F(ExplainEnd, TellsOfMemoryThatRanOutBeforeTheRanksHadARecord) {
    const auto kills = [&](int count) {
        folder_.file("root/proc/self/cgroup", "0::/job\n");
        folder_.file("root/sys/fs/cgroup/job/memory.events", fmt::format("oom_kill {}\n", count));
    };
    const auto end_after = [&](int before, int after) {
        kills(before);
        return error_after([&] { kills(after); });
    };
    EXPECT_STREQ(end_after(1, 1).what(), "killed");
    EXPECT_STREQ(end_after(1, 2).what(), "the ranks ended: memory ran out");
    EXPECT_THAT(end_after(0, 2).why(), HasSubstr("ended 2 process(es) for it"));
}

TEST_F(ExplainEnd, BlamesNobodyWhereAllAreGone) {
    EXPECT_EQ(explain([&] {
                  start("i1", 0, 2);
                  return 1;
              }),
              1);
    EXPECT_EQ(failure_, "");
}

TEST_F(ExplainEnd, LeavesEarlierStartsAlone) {
    start("i1", 1, 1);
    EXPECT_EQ(caught_code([&] { explain(fall); }), "E612");
    EXPECT_EQ(failure_, "");
    EXPECT_FALSE(fs::exists(verdict_path(newest_)));
}

RankErrors errors_in(const LogFolder& logs) {
    LogMerge merge(logs.path(), {.least = Level::error});
    return read_errors(merge, read_log_facts(logs.path()));
}

TEST(FirstError, IsNoConsequenceOfAPeersEnd) {
    LogFolder logs;
    logs.error(0, 1, "E682", "rank 3 gave up").error(1, 2, "E660", "rank 3 is gone");
    logs.error(3, 3, "E204", "'x' is cut short").line(2, 0, "well");
    const RankErrors errors = errors_in(logs);
    ASSERT_TRUE(errors.first.has_value());
    EXPECT_EQ(errors.first->code, "E204");
    EXPECT_EQ(errors.first->host, "n2");
    EXPECT_THAT(errors.first->ranks, ElementsAre(3));
    EXPECT_THAT(errors.followers, ElementsAre(0, 1));
}

TEST(FirstError, GoesByTheCorrectedClockAndPrefersARanksOwnToOneInDoubt) {
    LogFolder logs;
    logs.clock(0, 0).error(0, 100, "E402", "the second");
    logs.clock(2, 500).error(2, 599, "E405", "the first");
    EXPECT_EQ(errors_in(logs).first->code, "E405");
    LogFolder both, doubtful;
    both.error(0, 1, "E620", "MPI failed").error(1, 2, "E405", "disk full");
    EXPECT_EQ(errors_in(both).first->code, "E405");
    doubtful.error(0, 1, "E620", "MPI failed");
    EXPECT_EQ(errors_in(doubtful).first->blame, Blame::unsure);
}

// Ranks that agreed on an error all log it; it is of those who met it.
TEST(FirstError, NamesWhoMetAnErrorThatAllAgreedOn) {
    LogFolder logs;
    for (int rank = 0; rank < 4; ++rank)
        logs.event(rank,
                   5,
                   {{"event", "error"},
                    {"code", "E204"},
                    {"what", "cut short"},
                    {"fix", "copy it"},
                    {"ranks", Json::Array{Json(2)}}});
    const RankErrors errors = errors_in(logs);
    EXPECT_EQ(errors.first->fix, "copy it");
    EXPECT_THAT(errors.first->ranks, ElementsAre(2));
    EXPECT_EQ(errors.first->host, "n2");
    EXPECT_THAT(errors.followers, IsEmpty());
}

TEST(FirstError, IsOnlyToldWhereOnlyPeersAreToldOf) {
    LogFolder logs;
    logs.error(0, 1, "E660", "rank 3 is gone");
    const RankErrors errors = errors_in(logs);
    EXPECT_FALSE(errors.first.has_value());
    ASSERT_TRUE(errors.told.has_value());
    EXPECT_EQ(errors.told->what, "rank 3 is gone");
    EXPECT_THAT(errors.followers, ElementsAre(0));
}

}  // namespace
}  // namespace lockstep
