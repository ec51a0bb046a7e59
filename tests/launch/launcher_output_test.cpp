// SPDX-License-Identifier: Apache-2.0
#include "launcher_output.hpp"

#include "lockstep/core/host_name.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/process.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

/// This process's stderr, or `fd` instead, is a pipe as long as it lives.
class OtherStderr {
  public:
    explicit OtherStderr(int fd = STDERR_FILENO) : fd_(fd), before_(::dup(fd)) {
        int ends[2];
        EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
        reader_ = UniqueFd(ends[0]);
        ::dup2(ends[1], fd_);
        ::close(ends[1]);
        ::fcntl(reader_.value(), F_SETFL, O_NONBLOCK);
    }
    ~OtherStderr() { ::dup2(before_.value(), fd_); }
    OtherStderr& operator=(OtherStderr&&) = delete;

    std::string read() {
        std::string text, piece(1 << 16, '\0');
        for (ssize_t got; (got = ::read(reader_.value(), piece.data(), piece.size())) > 0;)
            text += piece.substr(0, static_cast<std::size_t>(got));
        return text;
    }
    void stop_reading() { reader_.reset(); }

  private:
    int fd_;
    UniqueFd before_, reader_;
};

class LauncherOutputs : public testing::Test {
  protected:
    /// Of start 3, with a place once `has_place_`.
    LauncherLog log() {
        return {3, [this](LaunchState) { return has_place_ ? folder_ / "i3" : fs::path(); }};
    }
    void run(const std::string& script, const KeptOutput& limits = {}) {
        Child child = start_child({"bash", "-c", script}, {}, ChildPipes::apart);
        LauncherOutput output(std::move(child.errors), log(), limits);
        reap_child(child.pid);
        while (output.has_more()) output.move();
    }
    fs::path file() const { return folder_ / "i3" / fmt::format("launcher-{}.jsonl", host_name()); }
    std::vector<std::string> kept() const {
        std::vector<std::string> texts;
        std::ifstream lines(file());
        for (std::string line; std::getline(lines, line);) {
            const Json record = parse_json(line, "record");
            EXPECT_EQ(record.at("event"), "launcher");
            EXPECT_EQ(record.at("start"), 3);
            EXPECT_TRUE(record.at("rank").is_null());
            texts.push_back(record.at("text").get<std::string>());
        }
        return texts;
    }

    test::TempDir folder_;
    bool has_place_ = true;
};

TEST_F(LauncherOutputs, GoOnUnchangedAndAreKeptByLine) {
    OtherStderr seen;
    run("printf 'one\\n\\033[1mtwo\\n\\nno end' >&2; echo not this");
    EXPECT_EQ(seen.read(), "one\n\033[1mtwo\n\nno end");
    EXPECT_THAT(kept(), ElementsAre("one", "?[1mtwo", "", "no end"));
}

constexpr const char* rule =
    "--------------------------------------------------------------------------\\n";

TEST_F(LauncherOutputs, ShowOpenMpisBoxesWithoutRulesAndNoiseNotAtAll) {
    OtherStderr seen;
    const std::string box = "The job has\\nmore processes.\\n\\n  App: true\\n";
    run(fmt::format(
        "printf 'a\\n{0}{1}{0}{0}Primary job  terminated normally, but\\n1 failed.\\n{0}' "
        ">&2; echo '[n1:7] 1 more process has sent help message x' >&2; "
        "echo '[n1:7] [[2,0],0] ORTE_ERROR_LOG: Data unpack would read past end of buffer in file "
        "../../../orte/util/show_help.c at line 501' >&2; echo '[warn] Epoll MOD(1) on fd 24 "
        "failed. Old events were 6' >&2; echo [b] >&2",
        rule,
        box));
    EXPECT_EQ(seen.read(), "a\nOpen MPI: The job has\n  more processes.\n    App: true\n[b]\n");
    EXPECT_EQ(kept().size(), 15u) << "all of them";
}

TEST_F(LauncherOutputs, ShowABoxWithoutAnEndAsItCame) {
    OtherStderr seen;
    run(fmt::format("printf -- '{}half\\n--' >&2", rule));
    EXPECT_EQ(seen.read(), std::string(74, '-') + "\nhalf\n--");
    run("printf -- '----\\n-----' >&2");
    EXPECT_EQ(seen.read(), "----\n-----") << "a program's own rules";
}

TEST_F(LauncherOutputs, ShowWhatWasHeldBackOnceNothingMoreComes) {
    OtherStderr seen;
    Child child =
        start_child({"bash", "-c", "printf 'Sure? \\n[y/n] ' >&2"}, {}, ChildPipes::apart);
    LauncherOutput output(std::move(child.errors), log());
    reap_child(child.pid);
    while (output.has_more()) output.move();
    EXPECT_EQ(seen.read(), "Sure? \n");
    output.settle();
    output.settle();
    output.move();
    EXPECT_EQ(seen.read(), "[y/n] ");
}

TEST_F(LauncherOutputs, WaitForAPlace) {
    OtherStderr seen;
    Child child = start_child({"bash", "-c", "echo early >&2"}, {}, ChildPipes::apart);
    LauncherOutput output(std::move(child.errors), log());
    reap_child(child.pid);
    has_place_ = false;
    while (output.has_more()) output.move();
    output.settle();
    EXPECT_FALSE(fs::exists(file()));
    has_place_ = true;
    output.settle();
    EXPECT_THAT(kept(), ElementsAre("early")) << "at once: this process may be killed";
}

TEST_F(LauncherOutputs, LeaveNothingWhereThereIsNoPlaceOrNothingToKeep) {
    OtherStderr seen;
    run("true");
    EXPECT_FALSE(fs::exists(folder_ / "i3"));
    has_place_ = false;
    run("echo words >&2");
    EXPECT_FALSE(fs::exists(folder_ / "i3"));
    EXPECT_EQ(seen.read(), "words\n");
}

TEST_F(LauncherOutputs, KeepTheBeginningAndTheEndOfMuch) {
    OtherStderr seen;
    run("for ((i = 1; i <= 500; ++i)); do echo \"line $i\"; done >&2",
        {.head_bytes = 3000, .tail_bytes = 1500});
    EXPECT_THAT(seen.read(), testing::EndsWith("line 499\nline 500\n"));
    const auto lines = kept();
    ASSERT_GT(lines.size(), 10u);
    EXPECT_LT(lines.size(), 60u);
    EXPECT_EQ(lines.front(), "line 1");
    EXPECT_EQ(lines.back(), "line 500");
    EXPECT_THAT(lines,
                testing::Contains(testing::MatchesRegex("\\([0-9]+ lines were not kept\\)")));
}

TEST_F(LauncherOutputs, DoNotWaitForAReader) {
    OtherStderr seen;
    Child child = start_child(
        {"bash", "-c", "head -c 200000 /dev/zero | tr '\\0' x >&2"}, {}, ChildPipes::apart);
    LauncherOutput output(std::move(child.errors), log());
    while (output.awaited().fd != STDERR_FILENO) output.move();
    output.move();
    EXPECT_TRUE(output.has_more()) << "it waits for a reader, and this process does not";
    std::string text = seen.read();
    while (text.size() < 200000) {
        output.move();
        text += seen.read();
    }
    EXPECT_EQ(text, std::string(200000, 'x'));
    reap_child(child.pid);
}

// What keeps its supervisor busy all the time.
TEST_F(LauncherOutputs, DoNotKeepALauncherAlive) {
    OtherStderr seen;
    seen.stop_reading();
    SupervisedRanks ranks{.have_begun = [] { return false; }, .log = log()};
    ranks.limits = {.begin_s = 1, .gone_s = 60, .end_s = 0.2};
    EXPECT_EQ(
        test::caught_code([&] {
            supervise({"bash", "-c", "trap '' TERM; while :; do echo words; done >&2"}, {}, ranks);
        }),
        "E691");
    EXPECT_LT(fs::file_size(file()), 3u << 20);
}

TEST_F(LauncherOutputs, AreNotWaitedForByWhoInterruptsTwice) {
    OtherStderr seen;
    SupervisedRanks ranks{.have_begun = [] { return true; }, .log = log()};
    const std::string flood =
        "trap '' USR2; yes >&2 & for i in {1..150}; do sleep 0.2; kill -INT $PPID; done";
    EXPECT_EQ(supervise({"bash", "-c", flood}, {}, ranks), 130);
}

// mpirun would crash if its own stdout were closed.
TEST_F(LauncherOutputs, OfATrainingGoOnWithoutAReader) {
    OtherStderr seen, words(STDOUT_FILENO);
    words.stop_reading();
    const SupervisedRanks training{.have_begun = [] { return true; }, .log = log()};
    const std::string talk = "for i in {1..40}; do echo line $i || exit 1; sleep 0.01; done";
    EXPECT_EQ(supervise({"bash", "-c", talk}, {}, training), 0);
    EXPECT_THAT(kept(), ElementsAre(testing::HasSubstr("stdout is closed")));
    EXPECT_THAT(seen.read(), testing::StartsWith("warn: stdout is closed"));
    EXPECT_EQ(supervise({"bash", "-c", talk + "; sleep 60"}, {}), 128 + SIGPIPE)
        << "others have nothing to save";
    EXPECT_EQ(seen.read(), "");
}

TEST_F(LauncherOutputs, AreKeptWhereNobodyReadsThemAnyMore) {
    OtherStderr seen;
    seen.stop_reading();
    run("echo words >&2");
    EXPECT_THAT(kept(), ElementsAre("words"));
    struct sigaction now {};
    ::sigaction(SIGPIPE, nullptr, &now);
    EXPECT_EQ(now.sa_handler, SIG_DFL);
}

}  // namespace
}  // namespace lockstep
