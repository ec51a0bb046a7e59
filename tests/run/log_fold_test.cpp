// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/run/log_text.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::SizeIs;

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
    Folded fold;
    fold.add(0, 1, "a").add(1, 1.1, "b").add(2, 1.2, "a").add(1, 1.3, "a").finish();
    EXPECT_THAT(fold.lines, ElementsAre("0-2 a", "1 b"));
}

TEST(LogFold, KeepsARanksOwnRepetitions) {
    Folded fold;
    fold.add(0, 1, "a").add(1, 1, "a").add(0, 1.1, "a").add(1, 1.1, "a").finish();
    EXPECT_THAT(fold.lines, ElementsAre("0-1 a", "0-1 a"));
}

TEST(LogFold, KeepsLinesApartThatAreFarApart) {
    Folded fold({.window_s = 1});
    fold.add(0, 1, "a").add(1, 2.5, "a").finish();
    EXPECT_THAT(fold.lines, ElementsAre("0 a", "1 a"));
}

TEST(LogFold, PutsLinesTogetherThatAreAlike) {
    Folded fold;
    fold.add(0, 1, "step 3 | 90 us", "step 3").add(1, 1, "step 3 | 70 us", "step 3").finish();
    EXPECT_THAT(fold.lines, ElementsAre("0-1 step 3 | 90 us"));
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

TEST(LogText, ShowsTimeRanksAndLevel) {
    EXPECT_EQ(shown(folded_of("hello", {0xFF})), "2026-01-31T12:34:56.789Z [0-7] info  hello\n");
    EXPECT_EQ(shown(folded_of("hello", {0x2}, Level::warn)),
              "2026-01-31T12:34:56.789Z [1]   warn  hello\n");
    EXPECT_EQ(shown(folded_of("hello", {0x2}), {.ranks = 8, .names_hosts = true}),
              "2026-01-31T12:34:56.789Z [1 n2] info  hello\n");
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

TEST(LogText, ColoursOnlyWhereAsked) {
    EXPECT_EQ(shown(folded_of("x", {1}, Level::error)).find('\033'), std::string::npos);
    EXPECT_NE(shown(folded_of("x", {1}, Level::error), {.colours = Colours::on}).find("\033[1;31m"),
              std::string::npos);
}

}  // namespace
}  // namespace lockstep
