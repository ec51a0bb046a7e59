// SPDX-License-Identifier: Apache-2.0
// Processes of this machine stand for nodes: each watches in a map in which it has a node of its
// own.
#include "lockstep/core/host_name.hpp"
#include "lockstep/run/verdict.hpp"
#include "lockstep/run/watchdog.hpp"

#include "flight/signs_of_life.hpp"
#include "flight_children.hpp"
#include "support/unit.hpp"

#include <chrono>

namespace lockstep {
namespace {

using test::eventually;
using test::has_ring;
using test::Rank;
using test::RankChild;
using test::sleep_for_ever;

const NodeWatchSettings fast{.beat_s = 0.05, .silent_s = 1.2};

NodeBeat example() {
    return {.count = 7,
            .unix_s = 1.5e9,
            .is_leaving = true,
            .has_lost_link = true,
            .ranks = {{4, 4711, RankState::running}, {5, 4712, RankState::gone}}};
}

TEST(NodeBeat, IsReadAsItWasWritten) {
    const TempDir folder;
    const fs::path path = node_beat_path(folder.path(), 3);
    EXPECT_FALSE(write_node_beat(path, example(), Create::no)) << "there is none";
    EXPECT_TRUE(write_node_beat(path, example(), Create::yes));
    EXPECT_EQ(read_node_beat(path), example());
    NodeBeat shorter = example();
    shorter.ranks[0].pid = 1;
    EXPECT_TRUE(write_node_beat(path, shorter, Create::no));
    EXPECT_EQ(read_node_beat(path), shorter);
}

TEST(LinkWatch, SeesACarrierThatGoesLately) {
    const TempDir folder;
    for (const char* name : {"lo/carrier", "eth0/carrier", "docker0/carrier"})
        folder.file(name, "1\n");
    folder.file("eth1/carrier", "0\n");
    folder.file("docker0/bridge/x", "");
    LinkWatch links(folder.path());
    EXPECT_FALSE(links.lost_one(100)) << "eth1 never had one";
    for (const char* name : {"lo/carrier", "docker0/carrier"}) folder.file(name, "0\n");
    EXPECT_FALSE(links.lost_one(103));
    folder.file("eth0/carrier", "0\n");
    EXPECT_TRUE(links.lost_one(106));
    EXPECT_TRUE(links.lost_one(160));
    EXPECT_FALSE(links.lost_one(170)) << "long ago";
    folder.file("eth0/carrier", "1\n");
    EXPECT_FALSE(links.lost_one(173));
    folder.file("eth0/carrier", "0\n");
    EXPECT_TRUE(links.lost_one(176)) << "again";
}

TEST(NodeBeat, IsNothingWhereItIsTornOrForeign) {
    const TempDir folder;
    const fs::path path = node_beat_path(folder.path(), 0);
    write_node_beat(path, example(), Create::yes);
    const std::string whole = content_of(path);
    const auto end = whole.find("end") + 3;
    for (std::size_t length = 0; length < end; ++length) {
        folder.file("node-00000.beat", whole.substr(0, length));
        EXPECT_FALSE(read_node_beat(path)) << length;
    }
    for (const char* text :
         {"{}", "lockstep-node-2 1 1 0 0\nend\n", "lockstep-node-1 1 1 0 0\n4 5 odd\nend\n"}) {
        folder.file("node-00000.beat", text);
        EXPECT_FALSE(read_node_beat(path)) << text;
    }
}

TEST(NodeBeat, TellsOfRanksThatAReaderCannotSee) {
    const TempDir folder;
    write_node_beat(node_beat_path(folder.path(), 0), example(), Create::yes);
    std::vector<RankTrace> traces;
    for (int i = 0; i < 3; ++i)
        traces.push_back({.rank = 3 + i, .pid = 4710 + i, .life = Life::elsewhere});
    add_node_beats(folder.path(), traces);
    EXPECT_EQ(traces[0].life, Life::elsewhere);
    EXPECT_EQ(traces[1].life, Life::elsewhere);
    EXPECT_EQ(traces[1].heartbeat_s, 1.5e9);
    EXPECT_EQ(traces[2].life, Life::gone);
}

/// Rank 0 on host "a", and this process's ranks, from 1, on host "b"; `self` is this process's
/// rank.
NodeMap two_nodes(int self, const std::vector<ProcessIdentity>& on_b) {
    NodeMap map{.rank = self, .own = self == 0 ? 0u : 1u, .nodes = {{"a", {}}, {"b", {}}}};
    map.nodes[0].ranks.push_back({0, self == 0 ? this_process() : ProcessIdentity{}});
    for (std::size_t i = 0; i < on_b.size(); ++i)
        map.nodes[1].ranks.push_back({static_cast<int>(i) + 1, on_b[i]});
    return map;
}

bool has_beat(const TempDir& folder, int node, std::uint64_t least) {
    return eventually([&] {
        const auto beat = read_node_beat(node_beat_path(folder.path(), node));
        return beat && beat->count >= least;
    });
}

const NodeWatchSettings beats_only{.beat_s = 0.05, .silent_s = 0};

/// Ranks of host "b" that beat and do nothing else. A rank knows its neighbours' processes.
class HostB {
  public:
    HostB(const TempDir& folder, int ranks) {
        for (int rank = 1; rank <= ranks; ++rank) {
            auto before = processes_;
            ranks_.push_back(std::make_unique<RankChild>(folder, rank, [&folder, rank, before] {
                auto on_b = before;
                on_b.push_back(this_process());
                const NodeWatch watch(two_nodes(rank, on_b), folder.path(), beats_only);
                sleep_for_ever();
            }));
            processes_.push_back(process_of(ranks_.back()->pid()));
        }
        EXPECT_TRUE(has_beat(folder, 1, 3));
    }

    const RankChild& rank(int rank) const { return *ranks_.at(static_cast<std::size_t>(rank - 1)); }
    const std::vector<ProcessIdentity>& processes() const { return processes_; }

  private:
    static ProcessIdentity process_of(pid_t pid) {
        ProcessIdentity process = this_process();
        process.pid = pid;
        const auto stat = parse_process_stat(content_of(fmt::format("/proc/{}/stat", pid)));
        process.start_ticks = stat ? stat->start_ticks : 0;
        return process;
    }

    std::vector<std::unique_ptr<RankChild>> ranks_;
    std::vector<ProcessIdentity> processes_;
};

/// Rank 0 on host "a" in its set-up.
std::unique_ptr<RankChild> watching_a(const TempDir& folder,
                                      const std::vector<ProcessIdentity>& on_b,
                                      NodeWatchSettings settings = fast) {
    return std::make_unique<RankChild>(folder, 0, [&folder, on_b, settings] {
        const NodeWatch watch(two_nodes(0, on_b), folder.path(), settings);
        sleep_for_ever();
    });
}

using NodeWatchTest = InFolder;

TEST_F(NodeWatchTest, EndsAStartWhoseOtherNodeIsStopped) {
    const HostB b(folder_, 1);
    const auto a = watching_a(folder_, b.processes());
    EXPECT_EQ(a->wait(2), -1) << "while the other beats";
    b.rank(1).send(SIGSTOP);
    const double begin = now_s();
    EXPECT_EQ(a->wait(60), 76);
    EXPECT_GT(now_s() - begin, 0.8);
    const std::string name = fmt::format("E660: rank 1 (b, pid {})", b.rank(1).pid());
    EXPECT_THAT(a->output(), has(name + " has given no sign of life for ", "setting up"));
    EXPECT_EQ(read_verdict(folder_.path())->culprits, std::vector<int>{1});
}

TEST_F(NodeWatchTest, BelievesANodeThatCallsItsRankGone) {
    const HostB b(folder_, 2);
    b.rank(1).send(SIGKILL);  // its deputy speaks for both
    const auto a = watching_a(folder_, b.processes(), beats_only);
    EXPECT_EQ(a->wait(60), 76) << "though silence means nothing";
    EXPECT_THAT(
        a->output(),
        HasSubstr(fmt::format("rank 1 (b, pid {}) is gone without a word", b.rank(1).pid())));
}

// The lowest rank speaks for its node, unless it is stopped; a stopped rank alone is no loss.
TEST_F(NodeWatchTest, HasDeputies) {
    const HostB b(folder_, 2);
    const auto a = watching_a(folder_, b.processes());
    b.rank(1).send(SIGSTOP);
    EXPECT_EQ(a->wait(2), -1);
    EXPECT_TRUE(eventually([&] {
        const auto beat = read_node_beat(node_beat_path(folder_.path(), 1));
        return beat && beat->ranks[0].state == RankState::stopped;
    }));
    b.rank(2).send(SIGSTOP);
    EXPECT_EQ(a->wait(60), 76);
    EXPECT_THAT(a->output(), HasSubstr("E660: ranks 1-2 (b) have given no sign of life"));
}

TEST_F(NodeWatchTest, EndsAStartWhoseOtherNodeIsCutOff) {
    const RankChild b(folder_, 1, [&] {
        for (std::uint64_t count = 1;; ++count, ::usleep(50'000))
            write_node_beat(
                node_beat_path(folder_.path(), 1),
                {.count = count, .has_lost_link = true, .ranks = {{1, 7, RankState::running}}},
                Create::yes);
    });
    const auto a = watching_a(folder_, {{}});
    EXPECT_EQ(a->wait(60), 76);
    EXPECT_THAT(a->output(), HasSubstr("is cut off: a network link of its node is down"));
}

/// Host "a" of two_nodes(), to whose packets host "b" does not reply since `silent_s`.
NodeWatchSettings unheard_by_b(double silent_s) {
    const double since_s = now_s() - silent_s;
    return {.beat_s = 0.05, .silent_s = 100, .unanswered_s = 1, .unanswered = [since_s] {
                return std::map<std::string, double>{{"10.0.0.2", now_s() - since_s},
                                                     {"10.0.0.9", 1000}};
            }};
}

NodeMap two_networked_nodes(const std::vector<ProcessIdentity>& on_b) {
    NodeMap map = two_nodes(0, on_b);
    map.nodes[0].addresses = {"10.0.0.1", "172.17.0.1"};
    map.nodes[1].addresses = {"10.0.0.2", "172.17.0.1"};
    return map;
}

/// Rank 0 on host "a", past its set-up, in `phase`; in a collective with Phase::wait.
std::unique_ptr<RankChild> training_a(const TempDir& folder,
                                      const NodeMap& map,
                                      Phase phase,
                                      const NodeWatchSettings& settings = fast,
                                      double abort_s = 600) {
    return std::make_unique<RankChild>(folder, 0, [&folder, map, phase, settings, abort_s] {
        NodeWatch watch(map, folder.path(), settings);
        Rank rank(folder, 0, 1 + static_cast<int>(map.nodes[1].ranks.size()), abort_s, &watch);
        watch.stand_by(rank.recorder);
        *rank.recorder.phase_word() = packed(PhaseMark{phase, now_s()});
        rank.finish_one();
        if (phase == Phase::wait) rank.wait_in_one();
        sleep_for_ever();
    });
}

TEST_F(NodeWatchTest, EndsARankWhosePacketsArriveNowhere) {
    const HostB b(folder_, 2);
    const double begin = now_s();
    const auto a =
        training_a(folder_, two_networked_nodes(b.processes()), Phase::wait, unheard_by_b(1000));
    EXPECT_EQ(a->wait(60), 76);
    EXPECT_GE(now_s() - begin, 0.9) << "an idle connection is not in vain since its last use";
    EXPECT_THAT(a->output(),
                AllOf(HasSubstr("E660: nothing gets through between nodes a and b: b (ranks 1-2) "
                                "has not answered for 1."),
                      HasSubstr("rank 0 waits in #2 barrier"),
                      HasSubstr("check firewalls")));
    EXPECT_EQ(read_verdict(folder_.path())->trouble, Trouble::network_slow);
}

TEST_F(NodeWatchTest, LeavesARankAloneThatComputesWhilePacketsAreLost) {
    const HostB b(folder_, 1);
    const auto a =
        training_a(folder_, two_networked_nodes(b.processes()), Phase::forward, unheard_by_b(0));
    EXPECT_EQ(a->wait(2), -1) << a->output();
}

// What this rank itself cannot write others may not be able to either.
TEST_F(NodeWatchTest, CountsNoSilenceWhileItCannotBeatItself) {
    const HostB b(folder_, 1);
    const auto a = watching_a(folder_, b.processes());
    ASSERT_TRUE(has_beat(folder_, 0, 2));
    fs::remove(node_beat_path(folder_.path(), 0));
    b.rank(1).send(SIGSTOP);
    EXPECT_EQ(a->wait(2), -1);
    EXPECT_FALSE(fs::exists(node_beat_path(folder_.path(), 0))) << "only a first beat makes a file";
}

TEST_F(NodeWatchTest, LeavesALossToTheWatchdogOfARankThatWaits) {
    const HostB b(folder_, 1);
    const auto a = training_a(folder_, two_nodes(0, b.processes()), Phase::wait);
    ASSERT_TRUE(has_ring(folder_, 0));
    b.rank(1).send(SIGSTOP);
    EXPECT_EQ(a->wait(60), 76);
    EXPECT_THAT(a->output(),
                has("rank 1 (b, pid ", "no sign of life for", "rank 0 waits in #2 barrier"));
    EXPECT_EQ(read_rank_trace(ring_path(folder_.path(), 0)).exit_code, 76);
}

// Its own launcher is on the other side of a firewall.
TEST_F(NodeWatchTest, EndsARankThatWaitsWhereAnotherNodeHasGivenUp) {
    const HostB b(folder_, 1);
    const double begin = now_s();
    const auto a = training_a(folder_, two_nodes(0, b.processes()), Phase::wait, beats_only, 12);
    ASSERT_TRUE(has_ring(folder_, 0));
    claim_verdict(folder_.path(), {.trouble = Trouble::network_slow, .what = "said elsewhere"});
    EXPECT_EQ(a->wait(1), -1) << "its launcher has some time";
    EXPECT_EQ(a->wait(60), 76);
    EXPECT_LT(now_s() - begin, 12) << "--comm-timeout";
    EXPECT_EQ(a->output(), "") << "it was said";
}

// Its launcher hears both; what the other side said before it was cut off nobody has heard.
TEST_F(NodeWatchTest, SpeaksAgainOnlyAfterAnotherNode) {
    for (const std::string& host : {host_name(), std::string("b")}) {
        const TempDir folder;
        const HostB b(folder, 1);
        folder.file("verdict.json", Json{{"host", host}}.dump());
        fs::last_write_time(verdict_path(folder.path()),
                            fs::file_time_type::clock::now() - std::chrono::seconds(10));
        const auto a = training_a(folder, two_nodes(0, b.processes()), Phase::wait);
        ASSERT_TRUE(has_ring(folder, 0));
        b.rank(1).send(SIGSTOP);
        EXPECT_EQ(a->wait(60), 76);
        EXPECT_EQ(a->output().empty(), host == host_name()) << host << ": " << a->output();
    }
}

TEST_F(NodeWatchTest, IsSilentAboutSilenceWhileItsRankComputes) {
    const HostB b(folder_, 1);
    const auto a = training_a(folder_, two_nodes(0, b.processes()), Phase::backward);
    ASSERT_TRUE(has_ring(folder_, 0));
    b.rank(1).send(SIGSTOP);
    EXPECT_EQ(a->wait(2), -1) << a->output();
}

// While ranks go from the folder of their set-up to that of training, and afterwards.
TEST_F(NodeWatchTest, LetsOneProcessGiveTheVerdict) {
    const Verdict verdict{.what = "rank 1 is gone"};
    for (const bool is_late_first : {true, false}) {
        const TempDir set_up, training;
        const NodeMap map = two_nodes(0, {this_process()});
        const NodeWatch early(map, set_up.path(), beats_only);
        NodeWatch late(map, set_up.path(), beats_only);
        const FlightRecorder recorder(training.path(), 0, 2, {.entries = 64});
        late.stand_by(recorder);
        EXPECT_TRUE((is_late_first ? late : early).claim(verdict));
        EXPECT_FALSE((is_late_first ? early : late).claim(verdict));
        fs::remove_all(set_up.path());
        EXPECT_EQ(late.claim(verdict), !is_late_first);
    }
}

TEST_F(NodeWatchTest, IsNotMissedWhereItSaidThatItLeaves) {
    const RankChild b(folder_, 1, [&] {
        NodeWatch watch(two_nodes(1, {this_process()}), folder_.path(), beats_only);
        FlightRecorder recorder(folder_.path(), 1, 2, {.entries = 64});
        watch.stand_by(recorder);
        ::usleep(1'000'000);
        recorder.mark_finished();
    });
    ASSERT_TRUE(has_beat(folder_, 1, 3));
    const auto a = watching_a(folder_, {{}});
    EXPECT_EQ(b.wait(60), 0);
    EXPECT_EQ(a->wait(2), -1) << a->output();
    const auto last = read_node_beat(node_beat_path(folder_.path(), 1));
    ASSERT_TRUE(last);
    EXPECT_TRUE(last->is_leaving);
    EXPECT_EQ(last->ranks[0].state, RankState::ended);
}

}  // namespace
}  // namespace lockstep
