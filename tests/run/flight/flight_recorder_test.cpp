// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/flight_recorder.hpp"

#include "flight_children.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

#include <rapidcheck/gtest.h>
#include <sys/stat.h>

namespace lockstep {
namespace {

constexpr FlightSettings small{.entries = 64};

FlightCall call_number(std::uint64_t i) {
    return {.op = FlightOp::reduce, .bytes = i * 8, .bucket = static_cast<std::int32_t>(i % 1000)};
}

RankTrace trace_in(const TempDir& folder, int rank = 0) {
    return read_rank_trace(ring_path(folder.path(), rank));
}

using FlightRecorderTest = InFolder;

TEST_F(FlightRecorderTest, ShowsAReaderWhatItsRankDoes) {
    FlightRecorder recorder(folder_.path(), 2, 4, {.entries = 64, .warn_s = 7});
    const auto channel = recorder.add_channel("gradients");
    const auto first = recorder.enqueue(channel, call_number(3));
    recorder.start(first);
    recorder.end(first);
    recorder.start(recorder.enqueue(channel, {.op = FlightOp::publish}));
    recorder.mark_running();
    *recorder.signal_word() = SIGTERM;

    const RankTrace trace = trace_in(folder_, 2);
    EXPECT_EQ(trace.damage, "");
    EXPECT_EQ(trace.rank, 2);
    EXPECT_EQ(trace.ranks, 4);
    EXPECT_EQ(trace.pid, ::getpid());
    EXPECT_EQ(trace.life, Life::running);
    EXPECT_TRUE(trace.is_running);
    EXPECT_EQ(trace.warn_s, 7);
    EXPECT_EQ(trace.signal, SIGTERM);
    EXPECT_EQ(trace.end, FlightEnd::none);
    EXPECT_EQ(trace.channels, std::vector<std::string>{"gradients"});
    EXPECT_NEAR(trace.heartbeat_s, unix_time_s(), 60);
    ASSERT_EQ(trace.entries.size(), 2u);
    EXPECT_EQ(trace.entries[0].call, call_number(3));
    EXPECT_EQ(trace.entries[0].seq, 1u);
    EXPECT_GE(trace.entries[0].ended_s, trace.entries[0].started_s);
    EXPECT_NEAR(trace.entries[0].enqueued_s, unix_time_s(), 60);
    EXPECT_EQ(trace.entries[1].seq, 2u);
    EXPECT_GT(trace.entries[1].started_s, 0);
    EXPECT_EQ(trace.entries[1].ended_s, 0);
}

TEST_F(FlightRecorderTest, IsReadInPartWithWhatIsNotOver) {
    FlightRecorder recorder(folder_.path(), 0, 1, {.entries = 1024});
    const auto channel = recorder.add_channel("gradients");
    for (std::uint64_t i = 1; i <= 1500; ++i) {
        const auto ticket = recorder.enqueue(channel, call_number(i));
        if (i != 600) recorder.end(ticket);
    }
    const RankTrace trace = read_rank_trace(ring_path(folder_.path(), 0), 300);
    ASSERT_EQ(trace.entries.size(), 301u);
    EXPECT_EQ(trace.entries.front().seq, 600u);
    EXPECT_EQ(trace.entries[1].seq, 1201u);
    EXPECT_EQ(trace.entries.back().call, call_number(1500));
    EXPECT_EQ(trace_in(folder_).entries.size(), 1024u);
}

TEST_F(FlightRecorderTest, ShowsWhereItsGpuIs) {
    FlightRecorder recorder(folder_.path(), 1, 200);
    recorder.add_channel("metrics");
    const auto channel = recorder.add_channel("gradients");
    recorder.enqueue(channel, call_number(1));
    const auto second = recorder.enqueue(channel, call_number(2));
    EXPECT_EQ(trace_in(folder_, 1).gpu.seq, 0u);
    recorder.note_gpu(second, {.place = GpuPlace::before});
    recorder.note_gpu(
        second, {.round = 1, .place = GpuPlace::inside, .missing = {0, 64, 199}, .arrived = 196});
    const GpuTrace gpu = trace_in(folder_, 1).gpu;
    EXPECT_EQ(gpu.channel, channel);
    EXPECT_EQ(gpu.seq, 2u);
    EXPECT_EQ(gpu.round, 1);
    EXPECT_EQ(gpu.place, GpuPlace::inside);
    EXPECT_EQ(gpu.missing, (std::vector<int>{0, 64, 199}));
    EXPECT_EQ(gpu.arrived, 196u);
    recorder.forget_gpu();
    EXPECT_EQ(trace_in(folder_, 1).gpu.seq, 0u);
}

TEST_F(FlightRecorderTest, IsReadableByItsOwnerAloneAndRefusesAFolderThatCannotBe) {
    const FlightRecorder recorder(folder_ / "flight", 0, 1);
    EXPECT_EQ(fs::status(ring_path(folder_ / "flight", 0)).permissions(), fs::perms(0600));
    EXPECT_EQ(fs::status(folder_ / "flight").permissions(), fs::perms(0700));
    const fs::path file = folder_.file("file", "");
    EXPECT_NE(caught_code([&] { FlightRecorder(file / "flight", 0, 1); }), "");
}

RC_GTEST_PROP(FlightRecorder, KeepsTheNewestEntriesInOrder, ()) {
    const TempDir folder;
    const auto count = *rc::gen::inRange<std::uint64_t>(1, 300);
    FlightRecorder recorder(folder.path(), 0, 1, small);
    const auto a = recorder.add_channel("a"), b = recorder.add_channel("b");
    for (std::uint64_t i = 0; i < count; ++i)
        recorder.end(recorder.enqueue(i % 3 == 0 ? a : b, call_number(i)));
    const RankTrace trace = trace_in(folder);
    RC_ASSERT(trace.entries.size() == std::min<std::uint64_t>(count, 64));
    for (std::size_t k = 0; k < trace.entries.size(); ++k) {
        const std::uint64_t i = count - trace.entries.size() + k;
        RC_ASSERT(trace.entries[k].call == call_number(i));
        RC_ASSERT(trace.entries[k].channel == (i % 3 == 0 ? a : b));
        RC_ASSERT(trace.entries[k].ended_s > 0);
    }
}

TEST_F(FlightRecorderTest, KnowsTheOldestThatIsPending) {
    FlightRecorder recorder(folder_.path(), 0, 1, small);
    const auto channel = recorder.add_channel("gradients");
    EXPECT_FALSE(recorder.oldest_pending());
    const auto first = recorder.enqueue(channel, call_number(0));
    const auto second = recorder.enqueue(channel, call_number(1));
    EXPECT_EQ(recorder.oldest_pending()->seq, 1u);
    recorder.end(first);
    EXPECT_EQ(recorder.oldest_pending()->seq, 2u);
    recorder.end(second);
    EXPECT_FALSE(recorder.oldest_pending());
}

TEST_F(FlightRecorderTest, ShowsTheEntriesThatFollowAndForgetsTicketsOfOverwrittenOnes) {
    FlightRecorder recorder(folder_.path(), 0, 1, small);
    const auto channel = recorder.add_channel("gradients");
    recorder.enqueue(channel, call_number(0));
    const auto next = recorder.next();
    EXPECT_FALSE(recorder.find(next)) << "it has not begun";
    const auto ticket = recorder.enqueue(channel, call_number(1));
    EXPECT_EQ(ticket.index, next.index);
    EXPECT_EQ(recorder.find(next)->call, call_number(1));
    EXPECT_EQ(recorder.find(next)->ended_s, 0);
    recorder.end(ticket);
    EXPECT_GE(recorder.find(next)->ended_s, recorder.find(next)->enqueued_s);
    for (int i = 0; i < 64; ++i) recorder.enqueue(channel, call_number(2));
    EXPECT_FALSE(recorder.find(next)) << "its place was taken";
    recorder.end(ticket);
    const RankTrace trace = trace_in(folder_);
    EXPECT_TRUE(std::ranges::all_of(trace.entries, [](auto& entry) { return entry.ended_s == 0; }));
}

TEST_F(FlightRecorderTest, MarksHowItEnds) {
    { const FlightRecorder recorder(folder_.path(), 0, 4, small); }
    EXPECT_EQ(trace_in(folder_, 0).end, FlightEnd::finished);
    FlightRecorder(folder_.path(), 1, 4, small).mark_failed(74);
    EXPECT_EQ(trace_in(folder_, 1).end, FlightEnd::failed);
    EXPECT_EQ(trace_in(folder_, 1).exit_code, 74);
    try {
        const FlightRecorder recorder(folder_.path(), 2, 4, small);
        throw 1;
    } catch (int) {
    }
    EXPECT_EQ(trace_in(folder_, 2).end, FlightEnd::failed);
}

TEST_F(FlightRecorderTest, IsNeverSeenTornByAnotherProcess) {
    const test::RankChild child(folder_, 0, [&] {
        FlightRecorder recorder(folder_.path(), 0, 1, small);
        const auto channel = recorder.add_channel("gradients");
        for (std::uint64_t i = 1;; ++i) recorder.end(recorder.enqueue(channel, call_number(i)));
    });
    ASSERT_TRUE(test::eventually([&] { return trace_in(folder_).damage.empty(); }));
    std::size_t seen = 0;
    for (int round = 0; round < 2000; ++round)
        for (const FlightEntry& entry : trace_in(folder_).entries) {
            ++seen;
            if (entry.call != call_number(entry.seq)) {
                ADD_FAILURE() << "entry " << entry.seq << " is a mixture";
                return;
            }
        }
    EXPECT_GT(seen, 0u);
}

TEST_F(FlightRecorderTest, TellsLifeStopAndDeathByKill) {
    const test::RankChild child(folder_, 0, [&] {
        FlightRecorder recorder(folder_.path(), 0, 1, small);
        recorder.start(recorder.enqueue(recorder.add_channel("x"), call_number(5)));
        test::sleep_for_ever();
    });
    ASSERT_TRUE(test::eventually([&] { return trace_in(folder_).entries.size() == 1; }));
    EXPECT_EQ(trace_in(folder_).life, Life::running);
    child.send(SIGSTOP);
    EXPECT_TRUE(test::eventually([&] { return trace_in(folder_).life == Life::stopped; }));
    child.send(SIGKILL);
    EXPECT_EQ(child.wait(60), 128 + SIGKILL);
    const RankTrace trace = trace_in(folder_);
    EXPECT_EQ(trace.life, Life::gone);
    EXPECT_EQ(trace.end, FlightEnd::none);
    ASSERT_EQ(trace.entries.size(), 1u);
    EXPECT_EQ(trace.entries[0].call, call_number(5));
}

// One byte of the file is another.
std::string with_byte(std::string bytes, std::size_t at, char value) {
    bytes[at] = value;
    return bytes;
}

std::string ring_bytes() {
    const TempDir folder;
    FlightRecorder recorder(folder.path(), 0, 2, small);
    const auto channel = recorder.add_channel("gradients");
    for (std::uint64_t i = 0; i < 100; ++i) recorder.end(recorder.enqueue(channel, call_number(i)));
    return content_of(ring_path(folder.path(), 0));
}

TEST(ReadRankTrace, SaysWhatIsWrongWithADamagedFile) {
    const std::string whole = ring_bytes();
    const struct {
        const char* name;
        std::string content;
        const char* damage;
    } cases[] = {
        {"empty", "", "it is cut short"},
        {"half a header", whole.substr(0, 200), "it is cut short"},
        {"no entries", whole.substr(0, 4096), "it is cut short"},
        {"one byte less", whole.substr(0, whole.size() - 1), "it is cut short"},
        {"text", std::string(9000, 'x'), "it is no ring of Lockstep's, or not whole yet"},
        {"zeros", std::string(9000, '\0'), "it is no ring of Lockstep's, or not whole yet"},
        {"version", with_byte(whole, 8, 2), "it has another format version"},
        {"header size", with_byte(whole, 13, 1), "its sizes make no sense"},
        {"entry size", with_byte(whole, 16, 1), "its sizes make no sense"},
        {"no power of two", with_byte(whole, 20, 65), "its sizes make no sense"},
        {"too many entries", with_byte(whole, 23, 0x40), "its sizes make no sense"},
        {"another rank", with_byte(whole, 24, 1), "it is another rank's"},
        {"negative rank", with_byte(whole, 27, '\xff'), "its rank or process makes no sense"},
        {"no ranks", with_byte(whole, 28, 0), "its rank or process makes no sense"},
    };
    for (const auto& one : cases) {
        const TempDir folder;
        folder.file("rank-00000.ring", one.content);
        EXPECT_EQ(trace_in(folder).damage, one.damage) << one.name;
    }
}

TEST(ReadRankTrace, FollowsNoLinkAndWaitsAtNoPipe) {
    const TempDir folder;
    fs::create_symlink(folder.file("elsewhere", ring_bytes()), ring_path(folder.path(), 0));
    EXPECT_EQ(trace_in(folder, 0).damage, "it cannot be opened");
    ::mkfifo(ring_path(folder.path(), 1).c_str(), 0600);
    EXPECT_EQ(trace_in(folder, 1).damage, "it is no file");
    fs::create_directory(ring_path(folder.path(), 2));
    EXPECT_EQ(trace_in(folder, 2).damage, "it is no file");
    EXPECT_NE(trace_in(folder, 3).damage, "");
}

RC_GTEST_PROP(ReadRankTrace, TakesAnyBytes, ()) {
    static const std::string whole = ring_bytes();
    std::string bytes = whole;
    const auto changes =
        *rc::gen::container<std::vector<std::pair<std::size_t, char>>>(rc::gen::pair(
            rc::gen::inRange<std::size_t>(0, 4096 + 64 * 64), rc::gen::arbitrary<char>()));
    for (const auto& [at, value] : changes) bytes[at] = value;
    const TempDir folder;
    folder.file("rank-00000.ring", bytes);
    const RankTrace trace = trace_in(folder);
    RC_ASSERT(trace.entries.size() <= 64u);
    for (const FlightEntry& entry : trace.entries) RC_ASSERT(!text_of(entry.call).empty());
}

TEST(ReadRankTraces, TakesRingFilesInOrderAndNothingElse) {
    const TempDir folder;
    EXPECT_EQ(caught_code([&] { read_rank_traces(folder.path()); }), "E663");
    for (const int rank : {11, 2}) FlightRecorder(folder.path(), rank, 12, small);
    for (const char* name : {"rank-x.ring", "rank-.ring", "rank-00001.ring~", "verdict.json"})
        folder.file(name, "x");
    const auto traces = read_rank_traces(folder.path());
    ASSERT_EQ(traces.size(), 2u);
    EXPECT_EQ(traces[0].rank, 2);
    EXPECT_EQ(traces[1].rank, 11);
}

// Not a bar but a figure: what a note of one collective costs.
TEST_F(FlightRecorderTest, CostsFarLessThanAnyCollective) {
    FlightRecorder recorder(folder_.path(), 0, 1);
    const auto channel = recorder.add_channel("gradients");
    double best_s = 1;
    for (int round = 0; round < 2000; ++round) {  // of which one is not held up
        constexpr int calls = 100;
        const double begin = now_s();
        for (int i = 0; i < calls; ++i) {
            const auto ticket = recorder.enqueue(channel, {.op = FlightOp::barrier});
            recorder.start(ticket);
            recorder.end(ticket);
        }
        best_s = std::min(best_s, (now_s() - begin) / calls);
    }
    std::printf("%.0f ns a collective\n", best_s * 1e9);
    EXPECT_LT(best_s, 20e-6) << "even with sanitizers";
}

}  // namespace
}  // namespace lockstep
