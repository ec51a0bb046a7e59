// SPDX-License-Identifier: Apache-2.0
// A launcher's lines among those of ranks: src/run/logs/launcher_fold.cpp, and what LogMerge
// and LogFold do with them.
#include "lockstep/core/error.hpp"
#include "lockstep/run/log_text.hpp"

#include "log_lines.hpp"
#include "support/unit.hpp"

#include <chrono>
#include <fstream>

#include <fmt/format.h>

namespace lockstep {
namespace {

using test::LogFolder;

const std::string rule(74, '-');

/// "warn text" for each line of the launcher's and "0-2 warn text" for ranks', as people see them.
std::vector<std::string> shown(const LogFolder& logs, LogChoice choice = {}) {
    std::vector<std::string> lines;
    choice.with_launcher = true;
    LogMerge merge(logs.path(), choice);
    LogFold fold({}, [&](const FoldedLine& line) {
        const std::string ranks = line.count() > 0 ? fold_ranks(line.ranks()) + " " : "";
        const std::string times = line.times > 1 ? fmt::format(" x{}", line.times) : "";
        lines.push_back(
            fmt::format("{}{} {}{}{}", ranks, level_name(line.level), line.code, line.text, times));
    });
    while (const LogLine* const line = merge.next()) fold.add(*line);
    merge.take_last_words();
    while (const LogLine* const line = merge.next()) fold.add(*line);
    fold.finish();
    EXPECT_EQ(merge.damaged(), 0u);
    return lines;
}

TEST(LauncherLog, TakesItsPlaceInTimeWhereItIsAskedFor) {
    LogFolder logs;
    logs.line(0, 1, "a").launcher(2, "ssh: no route").line(0, 3, "b");
    EXPECT_THAT(shown(logs), ElementsAre("0 info a", "warn ssh: no route", "0 info b"));
    EXPECT_THAT(test::merged(logs), ElementsAre("0 a", "0 b"));
    EXPECT_THAT(shown(logs, {.node = "n1"}), ElementsAre("0 info a", "0 info b"));
    EXPECT_THAT(shown(logs, {.node = "login"}), ElementsAre("warn ssh: no route"));
    EXPECT_THAT(shown(logs, {.ranks = std::vector<int>{}}), ElementsAre("warn ssh: no route"));
}

TEST(LauncherLog, IsOnTheClockOfARankOfItsHost) {
    LogFolder logs;
    logs.line(0, 100, "first").line(0, 102, "third");
    logs.clock(2, 3600).line(2, 3700, "zeroth").launcher(3701, "second", "n2");
    EXPECT_THAT(shown(logs),
                ElementsAre("0 info first", "2 info zeroth", "warn second", "0 info third"));
}

TEST(LauncherLog, HasABoxAsOneLine) {
    LogFolder logs;
    for (const std::string& line :
         {rule,
          std::string("Primary job  terminated normally, but 1 process returned"),
          std::string("a non-zero exit code. Per user-direction, the job has been aborted."),
          rule,
          rule,
          std::string("mpirun noticed that process rank 1 with PID 0 on node n2 exited on signal 9 "
                      "(Killed)."),
          rule})
        logs.launcher(1, line);
    EXPECT_THAT(shown(logs),
                ElementsAre("info Primary job terminated normally, but 1 process returned a "
                            "non-zero exit code (4 lines)",
                            "warn mpirun: process rank 1 on n2 exited on signal 9 (Killed) "
                            "(3 lines)"));
    EXPECT_THAT(shown(logs, {.least = Level::warn}), SizeIs(1));
}

TEST(LauncherLog, LosesNothingOfABoxThatIsNotWhole) {
    LogFolder logs;
    logs.launcher(1, rule)
        .launcher(1, "a library could not")
        .launcher(9, "later")
        .launcher(9, rule);
    EXPECT_THAT(shown(logs), ElementsAre("warn a library could not", "warn later"));
}

TEST(LauncherLog, KnowsWhatOnlyTellsOfAnEnd) {
    LogFolder logs;
    logs.launcher(1, "[n1:7] 3 more processes have sent help message help-mpi-api.txt / mpi-abort")
        .launcher(2, "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.")
        .launcher(3, "srun: error: n2: task 1: Killed")
        .launcher(4, "")
        .launcher(5, "   ");
    EXPECT_THAT(shown(logs, {.least = Level::warn}),
                ElementsAre("warn srun: error: n2: task 1: Killed"));
    EXPECT_THAT(shown(logs), SizeIs(3));
}

TEST(LauncherLog, DoesNotSayAgainWhatRanksSay) {
    LogFolder logs;
    logs.event(0, 1, {{"event", "stderr"}, {"text", "a library"}, {"end", 10}});
    logs.launcher(0.99, "a library");
    logs.line(1, 2, "the disk is slow", "warn")
        .launcher(2.1, "[rank 1 on n1] warn: the disk is slow");
    logs.line(0, 3, "of all", "warn").launcher(11, "warn: of all");
    logs.error(1, 20, "E213", "it is damaged")
        .launcher(20, "lockstep: error E213: it is damaged (rank 1 on n1)");
    logs.launcher(20, "  why: a disk").launcher(20, "  fix: another");
    for (const std::string& line : {rule, std::string("A peer is gone. This"), rule}) {
        logs.event(2, 30, {{"event", "stderr"}, {"text", line}, {"end", 20}});
        logs.launcher(30, line);
    }
    EXPECT_THAT(shown(logs),
                ElementsAre("0 warn a library",
                            "1 warn the disk is slow",
                            "0 warn of all",
                            "1 error E213it is damaged",
                            "2 warn " + rule,
                            "2 warn A peer is gone. This",
                            "2 warn " + rule));
}

TEST(LauncherLog, HasToldWhatARankLeftInItsStderr) {
    LogFolder logs;
    const std::string crash = "Signal: Segmentation fault";
    logs.line(0, 1, "a").launcher(1.5, crash, "n1").launcher(4, "the end", "n1");
    const fs::path file = logs.path() / "rank-00000.stderr";
    std::ofstream(file) << crash << "\nnot passed on\n";
    const std::chrono::sys_seconds when{std::chrono::seconds(2)};
    fs::last_write_time(file, std::chrono::file_clock::from_sys(when));
    EXPECT_THAT(shown(logs),
                ElementsAre("0 info a", "warn " + crash, "warn the end", "0 warn not passed on"));
}

TEST(LauncherLog, SaysWhatRanksHadNoLogForAndCountsWhatItSaysForEachRank) {
    LogFolder logs;
    logs.launcher(1, "lockstep: error E692: not heard (rank 0 on n1)").launcher(1, "  why: a net");
    logs.launcher(1, "[rank 1 on n1] warn: early").launcher(1, "warn: early for all");
    EXPECT_THAT(shown(logs),
                ElementsAre("error E692not heard (rank 0 on n1)",
                            "warn [rank 1 on n1] warn: early",
                            "warn early for all"));
    LogFolder alike;
    for (int rank = 0; rank < 8; ++rank)
        alike.launcher(1 + 0.01 * rank, "ERROR: ld.so: no such object");
    EXPECT_THAT(shown(alike), ElementsAre("warn ERROR: ld.so: no such object x8"));
}

TEST(LauncherLog, IsNamedInText) {
    std::string out;
    const FoldedLine line{
        .level = Level::warn, .kind = LogKind::launcher, .host = "n1", .text = "a", .times = 2};
    LogText({.ranks = 4}).append(out, line);
    EXPECT_EQ(out, "1970-01-01T00:00:00.000Z [launcher] warn  a (2 times)\n");
    out.clear();
    LogText({.ranks = 4, .names_hosts = true}).append(out, line);
    EXPECT_EQ(out, "1970-01-01T00:00:00.000Z [launcher n1] warn  a (2 times)\n");
}

/// "0-2 text" for each line that comes out.
class Folded {
  public:
    explicit Folded(const FoldLimits& limits = {})
        : fold_(limits, [this](const FoldedLine& line) {
              lines.push_back(fmt::format("{} {}", fold_ranks(line.ranks()), line.text));
          }) {}
    Folded& add(int rank, double time_s, std::string_view text, std::string_view alike = {}) {
        fold_.add({.time_s = time_s, .rank = rank, .text = text, .alike = alike});
        return *this;
    }
    Folded& finish() {
        fold_.finish();
        return *this;
    }
    std::vector<std::string> lines;

  private:
    LogFold fold_;
};

TEST(LogFold, PutsEqualLinesOfRanksTogether) {
    Folded fold, repeated, apart({.window_s = 1}), alike;
    fold.add(0, 1, "a").add(1, 1.1, "b").add(2, 1.2, "a").add(1, 1.3, "a").finish();
    EXPECT_THAT(fold.lines, ElementsAre("0-2 a", "1 b"));
    repeated.add(0, 1, "a").add(1, 1, "a").add(0, 1.1, "a").add(1, 1.1, "a").finish();
    EXPECT_THAT(repeated.lines, ElementsAre("0-1 a", "0-1 a")) << "a rank's own repetitions";
    apart.add(0, 1, "a").add(1, 2.5, "a").finish();
    EXPECT_THAT(apart.lines, ElementsAre("0 a", "1 a")) << "they are far apart";
    for (const int rank : {70, 1, 0, 2})
        alike.add(rank, 1, fmt::format("step 3 | 9{} us", rank), "step 3");
    EXPECT_THAT(alike.finish().lines, ElementsAre("0-2,70 step 3 | 90 us"));
}

TEST(LogFold, TellsLevelsAndKindsApart) {
    std::vector<Level> seen;
    LogFold fold({}, [&](const FoldedLine& line) { seen.push_back(line.level); });
    fold.add({.rank = 0, .level = Level::info, .text = "a"});
    fold.add({.rank = 1, .level = Level::warn, .text = "a"});
    fold.finish();
    EXPECT_THAT(seen, ElementsAre(Level::info, Level::warn));
}

TEST(LogFold, GivesOnEarlyWhatItHasNoRoomFor) {
    Folded few({.most_lines = 2});
    few.add(0, 1, "a").add(0, 1, "b");
    EXPECT_THAT(few.lines, SizeIs(0));
    few.add(0, 1, "c");
    EXPECT_THAT(few.lines, ElementsAre("0 a"));
    Folded small({.most_bytes = 100});
    small.add(0, 1, std::string(90, 'x')).add(0, 1, std::string(90, 'y'));
    EXPECT_THAT(small.lines, SizeIs(1));
}

// Each text of each of many ranks, more of them than the fold holds at a time.
TEST(LogFold, LosesNoLine) {
    constexpr int ranks = 100, texts = 5000;
    std::size_t count = 0;
    LogFold fold({.window_s = 10, .most_lines = 64},
                 [&](const FoldedLine& line) { count += line.count(); });
    for (int text = 0; text < texts; ++text)
        for (int rank = 0; rank < ranks; rank += 1 + text % 7) {
            const std::string words = fmt::format("{}", text + rank % 3);
            fold.add({.time_s = text * 0.01, .rank = rank, .text = words});
        }
    fold.finish();
    std::size_t expected = 0;
    for (int text = 0; text < texts; ++text)
        expected += static_cast<std::size_t>((ranks - 1) / (1 + text % 7) + 1);
    EXPECT_EQ(count, expected);
}

FoldedLine folded_of(std::string text,
                     std::vector<std::uint64_t> ranks,
                     Level level = Level::info) {
    return {.time_s = 1769862896.789,
            .level = level,
            .host = "n2",
            .text = std::move(text),
            .rank_bits = std::move(ranks)};
}

std::string shown(const FoldedLine& line, const LogStyle& style = {.ranks = 8}) {
    std::string out;
    LogText(style).append(out, line);
    return out;
}

TEST(LogText, ShowsTimeRanksAndLevelAndColoursWhereAsked) {
    EXPECT_EQ(shown(folded_of("hello", {0xFF})), "2026-01-31T12:34:56.789Z [0-7] info  hello\n");
    EXPECT_EQ(shown(folded_of("hello", {0x2}, Level::warn)),
              "2026-01-31T12:34:56.789Z [1]   warn  hello\n");
    EXPECT_EQ(shown(folded_of("hello", {0x2}), {.ranks = 8, .names_hosts = true}),
              "2026-01-31T12:34:56.789Z [1 n2] info  hello\n");
    EXPECT_EQ(shown(folded_of("x", {1}, Level::error)).find('\033'), std::string::npos);
    EXPECT_NE(shown(folded_of("x", {1}, Level::error), {.colours = Colours::on}).find("\033[1;31m"),
              std::string::npos);
}

TEST(LogText, LetsNoEscapeThrough) {
    const std::string evil =
        "a\033[31mred\033[0m\033]0;title\007b\x9b"
        "c\xC2\x9B"
        "2J\rd\x7F\n";
    const std::string text = shown(folded_of(evil, {1}));
    for (const char c : text.substr(0, text.size() - 1))
        EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F) << int(c);
    EXPECT_EQ(text.find("\xC2\x9B"), std::string::npos);
    EXPECT_NE(text.find("aredb"), std::string::npos) << text;
    EXPECT_EQ(plain_text("\033"), "?");
    EXPECT_EQ(plain_text("x\033["), "x");
    EXPECT_EQ(plain_text("gr\xC3\xBC\xC3\x9F"), "gr\xC3\xBC\xC3\x9F");
    EXPECT_EQ(plain_text("vm\x9B"
                         "2J\xE2\x80\xAE"),
              "vm?2J?");
}

}  // namespace
}  // namespace lockstep
