// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/log_merge.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/run/log_text.hpp"
#include "lockstep/run/run_status.hpp"

#include "log_lines.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <random>
#include <stdexcept>

namespace lockstep {
namespace {

using test::lines_now;
using test::LogFolder;
using test::merged;

/// The next line, which there must be.
const LogLine& next_of(LogMerge& merge) {
    const LogLine* const line = merge.next();
    if (line == nullptr) throw std::runtime_error("no line");
    return *line;
}

class LogMergeTest : public testing::Test {
  protected:
    LogFolder logs_;
};

TEST_F(LogMergeTest, CorrectsTheClocksOfNodes) {
    logs_.line(0, 100, "first").line(0, 102, "third");
    logs_.clock(2, 3600).line(2, 3701, "second");
    EXPECT_THAT(merged(logs_), ElementsAre("0 first", "2 second", "0 third"));
    const auto facts = read_log_facts(logs_.path());
    ASSERT_THAT(facts, SizeIs(2));
    EXPECT_EQ(facts[1].host, "n2");
    EXPECT_EQ(facts[1].clock_ahead_s, 3600);
}

// Without the correction lines would be an hour out of order.
TEST_F(LogMergeTest, ErrsInOrderNoMoreThanTheClocksWereMeasured) {
    constexpr int ranks = 8, lines = 200;
    constexpr double error_s = 0.002;
    std::map<std::string, double> truth;
    for (int rank = 0; rank < ranks; ++rank) {
        const double skew_s = 3600.0 * rank, mistake_s = rank % 2 == 0 ? error_s : -error_s;
        std::string text = LogFolder::record(
            rank,
            skew_s,
            {{"event", "clock"}, {"ahead_s", skew_s + mistake_s}, {"error_s", error_s}});
        for (int i = 0; i < lines; ++i) {
            const double true_s = 1000 + 0.001 * i + 0.0001 * rank;
            const std::string words = fmt::format("line {}", i);
            truth[fmt::format("{} {}", rank, words)] = true_s;
            text += LogFolder::record(
                rank, true_s + skew_s, {{"event", "log"}, {"level", "info"}, {"text", words}});
        }
        logs_.bytes(rank, text);
    }
    double newest_s = 0, late_s = 0;
    const auto all = merged(logs_);
    EXPECT_THAT(all, SizeIs(ranks * lines));
    for (const std::string& line : all) {
        newest_s = std::max(newest_s, truth.at(line));
        late_s = std::max(late_s, newest_s - truth.at(line));
    }
    EXPECT_LE(late_s, 2 * error_s + 0.001) << "both of two clocks may err";
    EXPECT_GT(late_s, 0) << "the clocks of this test do differ";
}

TEST_F(LogMergeTest, PutsLinesInOrderOfTimeButARanksOwnWhereItsClockIsSetBack) {
    LogFolder steady;
    steady.line(0, 1, "a").line(1, 2, "b").line(0, 3, "c").line(1, 3, "d");
    EXPECT_THAT(merged(steady), ElementsAre("0 a", "1 b", "0 c", "1 d"));
    logs_.line(0, 10, "a").line(0, 5, "b").line(1, 7, "c").line(0, 6, "d").line(1, 11, "e");
    EXPECT_THAT(merged(logs_), ElementsAre("1 c", "0 a", "0 b", "0 d", "1 e"));
}

TEST_F(LogMergeTest, ReadsWhatTheLogWrites) {
    const double before_s = unix_time_s();
    open_log({.rank = 3, .world_size = 4, .start = 7, .host = "n1", .directory = logs_.path()});
    here(Level::info, "a plain line");
    here(Level::info, "with \"quotes\", a \\ and {}", "\xC3\xA4");
    write_log(Level::info, Audience::here, "step 5 | loss 1", "step 5");
    log_event("steps", {{"step", 5}});
    open_log({});
    LogMerge merge(logs_.path(), {});
    const LogLine& line = next_of(merge);
    EXPECT_EQ(line.text, "a plain line");
    EXPECT_EQ(line.rank, 3);
    EXPECT_EQ(line.host, "n1");
    EXPECT_GE(line.time_s, before_s);
    EXPECT_FALSE(line.is_for_all);
    EXPECT_EQ(next_of(merge).text, "with \"quotes\", a \\ and \xC3\xA4");
    EXPECT_EQ(next_of(merge).alike, "step 5");
    EXPECT_EQ(merge.next(), nullptr);
    EXPECT_EQ(merge.damaged(), 0u);
}

TEST_F(LogMergeTest, ReadsLogsOfOlderVersions) {
    logs_.bytes(1,
                R"({"event":"log","level":"warn","t":5.5,"text":"old"})"
                "\n");
    LogMerge merge(logs_.path(), {});
    const LogLine& line = next_of(merge);
    EXPECT_EQ(line.text, "old");
    EXPECT_EQ(line.level, Level::warn);
    EXPECT_EQ(line.rank, 1);
}

TEST_F(LogMergeTest, ReadsErrorsAndCapturedLines) {
    logs_.event(1,
                5,
                {{"event", "error"},
                 {"code", "E204"},
                 {"what", "cut short"},
                 {"why", "a copy"},
                 {"ranks", Json::Array{Json(1), Json(3)}}});
    logs_.event(1, 6, {{"event", "stderr"}, {"text", "terminate called"}, {"end", 17}});
    LogMerge merge(logs_.path(), {});
    const LogLine& line = next_of(merge);
    EXPECT_EQ(line.kind, LogKind::error);
    EXPECT_EQ(line.code, "E204");
    EXPECT_EQ(line.text, "cut short");
    EXPECT_EQ(line.why, "a copy");
    EXPECT_THAT(line.failed, ElementsAre(1, 3));
    const LogLine& second = next_of(merge);
    EXPECT_EQ(second.kind, LogKind::captured);
    EXPECT_EQ(second.text, "terminate called");
}

TEST_F(LogMergeTest, EndsWithWhatACrashedRankHadNoTimeToLog) {
    logs_.line(0, 1, "a").event(0, 2, {{"event", "stderr"}, {"text", "known"}, {"end", 6}});
    logs_.line(1, 3, "b");
    std::ofstream(logs_.path() / "rank-00000.stderr") << "known\nlast words\ncut";
    LogMerge merge(logs_.path(), {});
    EXPECT_THAT(lines_now(merge), ElementsAre("0 a", "0 known", "1 b"));
    merge.take_last_words();
    EXPECT_THAT(lines_now(merge), ElementsAre("0 last words", "0 cut"));
    merge.take_last_words();
    EXPECT_THAT(lines_now(merge), IsEmpty());
}

TEST_F(LogMergeTest, PassesOverDamagedLinesAndCountsThem) {
    logs_.line(0, 1, "a");
    logs_.bytes(0, "{\"event\":\"log\",\"lev\n\n\x01\x02\xFF garbage\n{}\n[1]\n");
    logs_.bytes(0,
                R"({"event":"log","level":"info","text":"without a time"})"
                "\n");
    logs_.line(0, 1e300, "at no time").line(0, -5, "nor here").line(0, 2, "b");
    LogMerge merge(logs_.path(), {});
    EXPECT_THAT(lines_now(merge), ElementsAre("0 a", "0 b"));
    EXPECT_EQ(merge.damaged(), 8u);
}

TEST_F(LogMergeTest, WaitsForTheEndOfALineAndForNewLogs) {
    const std::string late =
        LogFolder::record(0, 2, {{"event", "log"}, {"level", "info"}, {"text", "in two pieces"}});
    logs_.line(0, 1, "a").bytes(0, late.substr(0, 30));
    LogMerge merge(logs_.path(), {});
    EXPECT_THAT(lines_now(merge), ElementsAre("0 a"));
    logs_.bytes(0, late.substr(30)).line(5, 3, "a new rank");
    EXPECT_EQ(merge.next(), nullptr);
    merge.look_again();
    EXPECT_THAT(lines_now(merge), ElementsAre("0 in two pieces", "5 a new rank"));
    EXPECT_EQ(merge.damaged(), 0u);
}

TEST_F(LogMergeTest, ToleratesAFileThatIsEmptyCutOrGone) {
    logs_.bytes(0, "").line(1, 1, "a").bytes(2, "{\"event\":");
    fs::create_symlink("nowhere", logs_.path() / "rank-00003.jsonl");
    EXPECT_THAT(merged(logs_), ElementsAre("1 a"));
}

TEST_F(LogMergeTest, PassesOverLinesThatAreTooLong) {
    logs_.line(0, 1, "a").line(0, 2, std::string(5000, 'x')).line(0, 3, "b");
    LogMerge merge(logs_.path(), {}, {.buffer_bytes = 4096, .longest_line = 4096});
    EXPECT_THAT(lines_now(merge), ElementsAre("0 a", "0 b"));
    EXPECT_EQ(merge.damaged(), 1u);
}

TEST_F(LogMergeTest, ReadsTheNewestPartWhereThatIsWanted) {
    for (int i = 0; i < 100; ++i) logs_.line(0, i, fmt::format("{} {}", i, std::string(1000, 'x')));
    logs_.line(1, 200, "short");
    const auto lines = merged(logs_, {.newest_bytes = 5000});
    EXPECT_LT(lines.size(), 6u);
    EXPECT_THAT(lines.front(), StartsWith("0 96 "));
    EXPECT_EQ(lines.back(), "1 short");
}

// A sparse file of a terabyte takes no room and is read as zeros.
TEST_F(LogMergeTest, LeavesALineThatDoesNotEnd) {
    logs_.line(0, 1, "a");
    const auto file = logs_.path() / "rank-00000.jsonl";
    fs::resize_file(file, std::uintmax_t{1} << 40);
    logs_.bytes(0, "\n").line(0, 2, "b");
    EXPECT_THAT(merged(logs_), ElementsAre("0 a", "0 b"));
}

// Lines of every length up to more than a piece, so that pieces end everywhere in them.
TEST_F(LogMergeTest, TearsNoLineAtTheEndOfAPiece) {
    std::vector<std::string> expected;
    for (std::size_t i = 0; i < 3000; ++i) {
        const std::string text = fmt::format("{} {}", i, std::string(i * 7 % 6000, 'y'));
        expected.push_back("0 " + text);
        logs_.line(0, static_cast<double>(i), text);
    }
    EXPECT_EQ(merged(logs_, {}, {.buffer_bytes = 4096}), expected);
}

TEST_F(LogMergeTest, OpensNoMoreFilesThanItMay) {
    constexpr int ranks = 64;
    for (int i = 0; i < 20; ++i)
        for (int rank = 0; rank < ranks; ++rank)
            logs_.line(rank, i + rank * 0.01, fmt::format("{}", i));
    const auto whole = merged(logs_);
    EXPECT_THAT(whole, SizeIs(20 * ranks));
    LogMerge few(logs_.path(), {}, {.most_open = 3});
    const auto open = std::distance(fs::directory_iterator("/proc/self/fd"), {});
    EXPECT_EQ(lines_now(few), whole);
    EXPECT_LE(std::distance(fs::directory_iterator("/proc/self/fd"), {}), open + 1);
    EXPECT_LE(open, 3 + 40);
}

TEST_F(LogMergeTest, GivesWhatIsChosen) {
    logs_.line(0, 1, "a").line(1, 2, "b", "warn").line(2, 3, "c", "debug").line(3, 4, "d", "error");
    EXPECT_THAT(merged(logs_, {.ranks = std::vector<int>{1, 2}}), ElementsAre("1 b", "2 c"));
    EXPECT_THAT(merged(logs_, {.node = "n2"}), ElementsAre("2 c", "3 d"));
    EXPECT_THAT(merged(logs_, {.least = Level::warn}), ElementsAre("1 b", "3 d"));
    EXPECT_THAT(merged(logs_, {.since_s = 3}), ElementsAre("2 c", "3 d"));
    EXPECT_THAT(merged(logs_, {.ranks = std::vector<int>{9}}), IsEmpty());
}

TEST_F(LogMergeTest, FindsATimeInALongLog) {
    std::string text =
        LogFolder::record(0, 0, {{"event", "clock"}, {"ahead_s", 50.0}, {"error_s", 0.0}});
    constexpr int lines = 20000;
    for (int i = 0; i < lines; ++i)
        text += LogFolder::record(
            0,
            i,
            i % 3 == 0 ? Json{{"event", "steps"}, {"step", i}, {"filler", std::string(500, 'z')}}
                       : Json{{"event", "log"}, {"level", "info"}, {"text", std::to_string(i)}});
    logs_.bytes(0, text);
    for (const int since : {0, 1, 7777, 15000, lines - 2}) {
        const auto found = merged(logs_, {.since_s = since - 50.0});
        ASSERT_FALSE(found.empty());
        EXPECT_EQ(found.front(), fmt::format("0 {}", since % 3 == 0 ? since + 1 : since));
        EXPECT_EQ(found.back(), fmt::format("0 {}", lines - 1));
    }
}

// Bytes of whole records changed at random, also where quotes, braces and line feeds are.
TEST_F(LogMergeTest, ShowsNoControlCharacterWhateverIsInALog) {
    const std::string whole =
        LogFolder::record(0, 1, {{"event", "clock"}, {"ahead_s", 0.5}, {"error_s", 0.1}}) +
        LogFolder::record(0, 2, {{"event", "log"}, {"level", "warn"}, {"text", "some \"words\""}}) +
        LogFolder::record(0, 3, {{"event", "error"}, {"code", "E204"}, {"what", "x"}}) +
        LogFolder::record(0, 4, {{"event", "stderr"}, {"text", "y"}, {"end", 7}});
    std::mt19937_64 random(7);
    for (int round = 0; round < 300; ++round) {
        LogFolder logs;
        std::string text;
        for (int copy = 0; copy < 20; ++copy) {
            std::string bytes = whole;
            for (std::uint64_t change = random() % 12; change > 0; --change)
                bytes[random() % bytes.size()] = static_cast<char>(random());
            text += bytes.substr(0, random() % (bytes.size() + 1));
        }
        logs.bytes(0, text).bytes(1, whole);
        std::string shown;
        LogText style({.ranks = 2, .names_hosts = true});
        LogFold fold({}, [&](const FoldedLine& line) { style.append(shown, line); });
        LogMerge merge(logs.path(), {});
        while (const LogLine* const line = merge.next()) fold.add(*line);
        fold.finish();
        for (const char c : shown) ASSERT_TRUE(c == '\n' || c == '\t' || (c & 0xE0) != 0) << int(c);
        ASSERT_EQ(shown.find('\x7F'), std::string::npos);
        ASSERT_NE(shown.find("some \"words\""), std::string::npos) << "of the whole one";
    }
}

TEST_F(LogMergeTest, RefusesAFolderThatIsMissing) {
    EXPECT_EQ(caught_code([] { LogMerge("/nonexistent", {}); }), "E201");
    EXPECT_EQ(caught_code([] { read_log_facts("/nonexistent"); }), "E201");
}

constexpr double hour_s = 3600, heard_s = 1.6e9;

// Ranks 0 and 1 are on n1, rank 2 is on n2, whose clock is `ahead_s` ahead.
RunClock clock_of(LogFolder& logs, double ahead_s) {
    logs.clock(0, 0).clock(1, 0).clock(2, ahead_s);
    return read_run_clock(logs.path());
}

TEST(RunClock, KnowsRanksHostsAndTheReadersClockByWhatWasMeasured) {
    for (const double ahead_s : {hour_s, -hour_s}) {
        LogFolder logs;
        const RunClock clock = clock_of(logs, ahead_s);
        EXPECT_EQ(clock.ahead_s(1), 0);
        EXPECT_EQ(clock.ahead_s(2), ahead_s);
        EXPECT_EQ(clock.ahead_s(3), 0) << "which has no log";
        EXPECT_EQ(clock.ahead_on("n1"), 0);
        EXPECT_EQ(clock.ahead_on("n2"), ahead_s);
        EXPECT_FALSE(clock.ahead_on("n3").has_value());
        EXPECT_FALSE(clock.ahead_on("").has_value());
        EXPECT_EQ(clock.present_s(heard_s + 1, "n1", heard_s), heard_s + 1);
        EXPECT_EQ(clock.present_s(heard_s + 1 + ahead_s, "n2", heard_s), heard_s + 1);
        EXPECT_EQ(clock.present_s(heard_s + 1, "login", heard_s), heard_s + 1);
    }
    EXPECT_EQ(read_run_clock("/nonexistent").ahead_s(0), 0);
}

// Where no rank is on the reader's host, the file server tells how rank 0's clock stands.
TEST(RunClock, AsksTheFileSystemWhereASignOfLifeCannotBeOfNow) {
    for (const double ahead_s : {hour_s, -hour_s}) {
        LogFolder logs;
        const RunClock clock = clock_of(logs, 0);
        const fs::path log = logs.path() / "rank-00000.jsonl";
        const double here_s = 1e-9 * static_cast<double>(file_stamp(log).time_ns);
        logs.line(0, here_s + ahead_s, "step");
        EXPECT_NEAR(clock.present_s(here_s, "login", here_s + ahead_s), here_s + ahead_s, 5);
        EXPECT_EQ(clock.present_s(here_s + 10 * hour_s, "login", here_s + ahead_s),
                  here_s + 10 * hour_s)
            << "it is over for long";
    }
}

}  // namespace
}  // namespace lockstep
