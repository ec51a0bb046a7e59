// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/log.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/json.hpp"

#include "support/unit.hpp"

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// What an action writes to this process's stdout and stderr.
struct Said {
    std::string out, err;
};
template <class Action>
Said said_by(Action&& action) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    action();
    return {testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

std::vector<std::string> lines_of(const fs::path& path) {
    std::istringstream in(content_of(path));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

/// Makes stdout something else for its lifetime.
class OtherStdout {
  public:
    explicit OtherStdout(UniqueFd other) : before_(::dup(STDOUT_FILENO)) {
        ::dup2(other.value(), STDOUT_FILENO);
    }
    ~OtherStdout() { ::dup2(before_.value(), STDOUT_FILENO); }
    OtherStdout(const OtherStdout&) = delete;
    OtherStdout& operator=(const OtherStdout&) = delete;

  private:
    UniqueFd before_;
};

/// Makes stdout a terminal for its lifetime.
class Terminal {
  public:
    explicit Terminal(const char* kind = "xterm") { ::setenv("TERM", kind, 1); }

    /// What was shown: at least `bytes`, or less if no more comes. A terminal delivers in pieces.
    std::string seen(std::size_t bytes) const {
        std::string text;
        std::array<char, 4096> block{};
        pollfd waiting{controller_.value(), POLLIN, 0};
        while (text.size() < bytes && ::poll(&waiting, 1, 5000) == 1) {
            const auto got = ::read(controller_.value(), block.data(), block.size());
            if (got <= 0) break;
            text.append(block.data(), static_cast<std::size_t>(got));
        }
        return text;
    }

  private:
    UniqueFd other_end() const {
        ::grantpt(controller_.value());
        ::unlockpt(controller_.value());
        return UniqueFd(::open(::ptsname(controller_.value()), O_RDWR | O_NOCTTY));
    }

    UniqueFd controller_{::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)};
    OtherStdout stdout_{other_end()};
};

class LogTest : public InFolder {
  protected:
    ~LogTest() override { open_log({}); }

    void open_as(int rank) const {
        open_log({.rank = rank, .world_size = 2, .host = "node-a", .directory = directory_});
    }

    fs::path text_file(int rank) const {
        return directory_ / ("rank-0000" + std::to_string(rank) + ".log");
    }
    fs::path json_file(int rank) const {
        return directory_ / ("rank-0000" + std::to_string(rank) + ".jsonl");
    }

    fs::path directory_ = folder_ / "logs/i1";
};

TEST_F(LogTest, WritesAFileForEachRank) {
    const auto said = said_by([&] {
        for (const int rank : {0, 1}) {
            open_as(rank);
            here(Level::info, "I am {}", rank);
            once(Level::info, "for all");
        }
    });
    EXPECT_THAT(lines_of(text_file(0)),
                ElementsAre(EndsWith("info  I am 0"), EndsWith("info  for all")));
    EXPECT_THAT(lines_of(text_file(1)), ElementsAre(EndsWith("info  I am 1")));
    EXPECT_EQ(said.out, "for all\n");
    EXPECT_EQ(said.err, "");
}

TEST_F(LogTest, KeepsItsFilesForTheOwner) {
    open_as(0);
    struct stat facts {};
    ASSERT_EQ(::stat(text_file(0).c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0600u);
    ASSERT_EQ(::stat(directory_.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0700u);
}

TEST_F(LogTest, BeginsLinesWithTimeAndLevel) {
    open_as(0);
    said_by([] { here(Level::error, "bad"); });
    EXPECT_THAT(lines_of(text_file(0))[0], MatchesRegex("20[0-9-]+T[0-9:.]+Z error bad"));
    for (const Level level : {Level::debug, Level::info, Level::warn, Level::error})
        EXPECT_EQ(level_named(level_name(level)), level);
    EXPECT_EQ(level_name(Level::warn), "warn");
    EXPECT_FALSE(level_named("loud"));
}

TEST_F(LogTest, ShowsWarningsOfARankWithItsNameAndHostAndKeepsDebugLinesInTheFile) {
    open_as(1);
    const auto said = said_by([] {
        here(Level::info, "quiet");
        here(Level::warn, "slow disk");
    });
    EXPECT_EQ(said.err, "[rank 1 on node-a] warn: slow disk\n");
    EXPECT_EQ(said.out, "");
    open_as(0);
    EXPECT_EQ(said_by([] { once(Level::debug, "detail"); }).out, "");
    EXPECT_THAT(lines_of(text_file(0)), ElementsAre(EndsWith("detail")));
}

TEST_F(LogTest, WritesRecordsForMachinesAlsoOfWhatIsNotUtf8) {
    open_as(1);
    log_event("step", {{"step", 7}});
    here(Level::info, "hello");
    const auto lines = lines_of(json_file(1));
    ASSERT_THAT(lines, SizeIs(2));
    const auto event = parse_json(lines[0], "line");
    EXPECT_EQ(event["event"], "step");
    EXPECT_EQ(event["step"], 7);
    EXPECT_GT(event["t"].get<double>(), 1.7e9);
    EXPECT_EQ(parse_json(lines[1], "line")["text"], "hello");
    EXPECT_THAT(lines_of(text_file(1)), SizeIs(1));
    open_as(1);
    log_event("x", {{"name", "\xff\xfe"}});
    here(Level::info, "{}", "\xff");
    for (const auto& line : lines_of(json_file(1))) EXPECT_NO_THROW(parse_json(line, "line"));
}

TEST_F(LogTest, AppendsWhenARankStartsAgain) {
    open_as(1);
    here(Level::info, "one");
    open_as(1);
    here(Level::info, "two");
    EXPECT_THAT(lines_of(text_file(1)), ElementsAre(EndsWith("one"), EndsWith("two")));
}

TEST_F(LogTest, PrintsTablesAsTheyAreOnRankZeroOnly) {
    open_as(0);
    const auto first = said_by([] { print_once("a  b\n1  2\n"); });
    open_as(1);
    const auto second = said_by([] { print_once("a  b\n"); });
    EXPECT_EQ(first.out, "a  b\n1  2\n");
    EXPECT_EQ(second.out, "");
    EXPECT_THAT(content_of(text_file(0)), HasSubstr("a  b\n1  2\n"));
}

TEST_F(LogTest, LetsNoEscapeReachFileOrTerminalNorThatOfATable) {
    open_as(0);
    const auto said = said_by([] { once(Level::warn, "{}", "a\033[2Jb\rc\nd\x9b\x7f"); });
    EXPECT_THAT(said.err, EndsWith("warn: a?[2Jb?c d??\n"));
    EXPECT_THAT(content_of(text_file(0)), Not(ContainsRegex("[\033\r]")));
    EXPECT_THAT(lines_of(text_file(0)), SizeIs(1));
    open_as(0);
    const auto table = said_by([] {
        print_once("a\033]0;x\007\n");
        write_error(
            "b\xc2\x9b"
            "2J\n");
    });
    EXPECT_EQ(table.out, "a?]0;x?\n");
    EXPECT_EQ(table.err, "b?2J\n");
}

TEST_F(LogTest, KeepsLinesWholeUnderEightThreads) {
    constexpr int threads = 8, lines_each = 150;
    open_as(1);
    std::vector<std::thread> writers;
    for (int t = 0; t < threads; ++t) {
        writers.emplace_back([t] {
            for (int i = 0; i < lines_each; ++i) {
                here(Level::info, "{} {} {}", t, i, std::string(300, static_cast<char>('a' + t)));
            }
        });
    }
    for (auto& writer : writers) writer.join();
    std::map<int, int> next;
    for (const auto& line : lines_of(text_file(1))) {
        std::istringstream in(line);
        std::string time, level, letters;
        int thread = -1, number = -1;
        in >> time >> level >> thread >> number >> letters;
        ASSERT_EQ(letters, std::string(300, static_cast<char>('a' + thread))) << line;
        ASSERT_EQ(number, next[thread]++);
    }
    EXPECT_THAT(next, SizeIs(threads));
    for (const auto& [thread, count] : next) EXPECT_EQ(count, lines_each);
    EXPECT_THAT(lines_of(json_file(1)), SizeIs(threads * lines_each));
}

TEST_F(LogTest, ShowsNoLiveLineWithoutATerminal) {
    open_as(0);
    const auto said = said_by([] {
        EXPECT_FALSE(has_live_terminal());
        show_live("50 %");
        once(Level::info, "line");
    });
    EXPECT_EQ(said.out, "line\n");
}

TEST_F(LogTest, ReplacesTheLiveLineOnATerminal) {
    open_as(0);
    const std::string expected = "50 %\r\033[Kline\r\n60 %\r\033[K";
    std::string seen;
    bool is_live = false;
    {
        const Terminal terminal;
        is_live = has_live_terminal();
        show_live("50 %");
        once(Level::info, "line");
        show_live("60 %");
        show_live("");
        seen = terminal.seen(expected.size());
    }
    EXPECT_TRUE(is_live);
    EXPECT_EQ(seen, expected);
    EXPECT_THAT(content_of(text_file(0)), Not(HasSubstr("%")));
}

TEST_F(LogTest, HasNoLiveLineOnADumbTerminalOrOnOtherRanks) {
    open_as(0);
    std::string seen;
    {
        const Terminal terminal("dumb");
        EXPECT_FALSE(has_live_terminal());
        show_live("50 %");
        once(Level::info, "line");
        seen = terminal.seen(6);
    }
    EXPECT_EQ(seen, "line\r\n");
    open_as(1);
    const Terminal terminal;
    EXPECT_FALSE(has_live_terminal());
}

class KeptStderr : public InFolder {
  protected:
    /// What a child says on stderr that does `first`, keeps its stderr and does `action`.
    std::string said_by_child(
        void (*action)(), void (*first)() = [] {}) const {
        std::array<int, 2> ends{};
        if (::pipe(ends.data()) != 0) return "no pipe";
        const pid_t child = ::fork();
        if (child == 0) {
            ::dup2(ends[1], STDERR_FILENO);
            ::close(ends[0]);
            ::close(ends[1]);
            first();
            open_log(
                {.rank = 1, .world_size = 2, .directory = folder_.path(), .keeps_stderr = true});
            action();
            open_log({});
            ::_exit(0);
        }
        ::close(ends[1]);
        const UniqueFd output(ends[0]);
        std::string text;
        std::array<char, 4096> block{};
        for (ssize_t got = 0; (got = ::read(output.value(), block.data(), block.size())) > 0;)
            text.append(block.data(), static_cast<std::size_t>(got));
        ::waitpid(child, nullptr, 0);
        return text;
    }

    const fs::path kept_ = folder_ / "rank-00001.stderr";
};

TEST_F(KeptStderr, GoesToTheFileTheLogAndWhereItWentBefore) {
    const std::string said = said_by_child([] {
        std::fputs("a library's \033[31mwords\nand more", stderr);
        here(Level::warn, "my own");
    });
    EXPECT_THAT(said, has("a library's \033[31mwords\nand more", "my own"));
    EXPECT_EQ(content_of(kept_), "a library's \033[31mwords\nand more");
    const auto lines = lines_of(folder_ / "rank-00001.jsonl");
    ASSERT_THAT(lines, SizeIs(3));
    EXPECT_THAT(content_of(folder_ / "rank-00001.jsonl"), HasSubstr("\"a library's ?[31mwords\""));
    EXPECT_THAT(lines[2], HasSubstr("\"end\":31,\"event\":\"stderr\",\"host\":\"\",\"rank\":1"));
}

TEST_F(KeptStderr, HasTheLastWordsOfAProcessThatCrashes) {
    const std::string said = said_by_child([] {
        std::fputs("last words\n", stderr);
        std::abort();
    });
    EXPECT_EQ(said, "last words\n");
    EXPECT_EQ(content_of(kept_), "last words\n");
}

// As MPI's, which prints where the process was and raises the signal again.
TEST_F(KeptStderr, HasWhatAnotherHandlerOfCrashesSays) {
    const auto handle_crashes = [] {
        ::signal(SIGSEGV, [](int number) {
            [[maybe_unused]] const auto wrote = ::write(STDERR_FILENO, "a trace\n", 8);
            ::signal(number, SIG_DFL);
            ::raise(number);
        });
    };
    EXPECT_EQ(said_by_child([] { ::raise(SIGSEGV); }, handle_crashes), "a trace\n");
    EXPECT_EQ(content_of(kept_), "a trace\n");
}

TEST_F(KeptStderr, HasTheLastWordsOfAProcessThatIsKilledAndLeavesNoEmptyFile) {
    said_by_child([] {});
    EXPECT_FALSE(fs::exists(kept_));
    said_by_child([] {
        std::fputs("last words\n", stderr);
        ::raise(SIGKILL);
    });
    EXPECT_EQ(content_of(kept_), "last words\n");
}

TEST_F(LogTest, TellsAtTheEndOfResultsThatHadNoRoom) {
    open_log({});
    {
        const OtherStdout full(UniqueFd(::open("/dev/full", O_WRONLY | O_CLOEXEC)));
        print_once("a  b\n");
    }
    print_once("");
    EXPECT_EQ(caught_code([] { check_printed(); }), "E405");
    open_log({});
    EXPECT_EQ(caught_code([] { check_printed(); }), "");
}

TEST_F(LogTest, PrintsOnAfterAFileThatIsNamedByStdout) {
    open_log({});
    const test::TempDir folder;
    const fs::path file = folder / "f";
    {
        const OtherStdout other(UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT, 0600)));
        print_once("a\n");
        write_named_file("/dev/stdout", "b\n");
        print_once("c\n");
    }
    EXPECT_EQ(content_of(file), "a\nb\nc\n");
}

TEST_F(LogTest, TellsOnceThatStdoutTakesNoMore) {
    const UniqueFd sealed(::memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(::fcntl(sealed.value(), F_ADD_SEALS, F_SEAL_WRITE), 0);
    const auto said = said_by([&] {
        open_as(0);
        const OtherStdout other(UniqueFd(::dup(sealed.value())));
        print_once("a\n");
        print_once("b\n");
    });
    const std::string news =
        "stdout cannot be written (Operation not permitted): the training continues";
    EXPECT_THAT(said.err, HasSubstr("warn: " + news));
    const std::string kept = content_of(text_file(0));
    EXPECT_THAT(kept, has(news, "a\n", "b\n"));
    EXPECT_EQ(kept.find(news), kept.rfind(news));
}

TEST_F(LogTest, TakesAReaderThatWentAwayForNoError) {
    open_log({});
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    ::close(ends[0]);
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    {
        const OtherStdout closed(UniqueFd{ends[1]});
        print_once("a  b\n");
    }
    std::signal(SIGPIPE, before);
    EXPECT_EQ(caught_code([] { check_printed(); }), "");
}

TEST(Printable, ReplacesControlCharactersAndWhatChangesTheOrderOfLetters) {
    EXPECT_EQ(printable("plain \xc3\xa4 text"), "plain \xc3\xa4 text");
    EXPECT_EQ(printable("a\tb\nc"), "a\tb c");
    EXPECT_EQ(printable("\033[31m\a\b\x7f"), "?[31m???");
    EXPECT_EQ(printable(std::string_view("\0", 1)), "?");
    for (const char* reorders : {"\u2028", "\u202a", "\u202e", "\u2066", "\u2069"})
        EXPECT_EQ(printable(std::string("a") + reorders + "b"), "a?b");
    for (const char* harmless : {"\u2027", "\u202f", "\u2065", "\u206a", "\u05d0", "\U0001f600"})
        EXPECT_EQ(printable(harmless), harmless);
    EXPECT_EQ(printable_lines("a\n\tb\r\033\n"), "a\n\tb??\n");
}

TEST(Printable, ReplacesControlCharactersThatUtf8Hides) {
    EXPECT_EQ(printable("a\xc2\x9b"
                        "31m"),
              "a?31m");
    EXPECT_EQ(printable("\xc2\x80\xc2\xa0"), "?\xc2\xa0");
    EXPECT_EQ(printable("\xc2"), "\xc2");
    EXPECT_EQ(printable("\x9b"
                        "31m \xe9 \xe4\x85"),
              "?31m \xe9 \xe4?")
        << "Latin-1";
}

}  // namespace
}  // namespace lockstep
