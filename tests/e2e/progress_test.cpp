// SPDX-License-Identifier: Apache-2.0
// What commands that last show of their progress: on a terminal, a narrow one, one without escapes.
#include "program.hpp"

#include <array>
#include <cstdlib>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::test {
namespace {

/// What the program showed on a terminal of its own, and how it ended.
struct Screened {
    int exit_code = -1;
    std::string shown;
};

[[noreturn]] void become_program_on(const std::string& terminal, std::vector<char*> arguments) {
    ::setsid();
    const int end = ::open(terminal.c_str(), O_RDWR);
    ::ioctl(end, TIOCSCTTY, 0);
    for (const int fd : {0, 1, 2}) ::dup2(end, fd);
    ::alarm(100);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
}

/// Until the program, and whoever has its terminal, is gone.
std::string read_all(const UniqueFd& terminal) {
    std::string shown;
    std::array<char, 4096> block{};
    while (true) {
        const auto got = ::read(terminal.value(), block.data(), block.size());
        if (got <= 0) return shown;
        shown.append(block.data(), static_cast<std::size_t>(got));
    }
}

/// `lockstep WORDS` on a terminal of so many columns.
Screened run_on_terminal(const Words& words, unsigned short columns, const char* kind) {
    const UniqueFd controller(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
    ::grantpt(controller.value());
    ::unlockpt(controller.value());
    const winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    ::ioctl(controller.value(), TIOCSWINSZ, &size);
    Words all = Words{program()} + words;
    std::vector<char*> arguments;
    for (std::string& word : all) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    const std::string terminal = ::ptsname(controller.value());
    ::setenv("TERM", kind, 1);
    const pid_t pid = ::fork();
    if (pid == 0) become_program_on(terminal, arguments);
    Screened result{.shown = read_all(controller)};
    int status = 0;
    ::waitpid(pid, &status, 0);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return result;
}

/// The live lines: what stands on a line when it is wiped.
std::vector<std::string> live_lines(const std::string& shown) {
    const std::string wipe = "\r\x1b[K";
    std::vector<std::string> lines;
    std::size_t begin = 0;
    for (std::size_t at = 0; (at = shown.find(wipe, begin)) != shown.npos;
         begin = at + wipe.size()) {
        const std::string before = shown.substr(begin, at - begin);
        lines.push_back(before.substr(before.rfind('\n') + 1));
    }
    return lines;
}

/// A data set, a run and the commands on them, by name.
class Lasting : public testing::Test {
  protected:
    static Words train(const fs::path& run) {
        return train_words(train_data(), run, "mlp", 48) + Words{"--max-steps", "4"};
    }

    static std::map<std::string, Words> commands(const std::string& mark) {
        static const TempDir folder;
        static const std::string trained = output_of(run_lockstep(train(folder / "run")));
        const std::string data = train_data(), run = folder / "run";
        const auto out = [&](const std::string& name) { return folder / (name + mark); };
        return {
            {"pack", {"data", "synth", "--samples", "500", "--out", out("synth")}},
            {"verify data", {"data", "verify", data}},
            {"reshard", {"data", "reshard", data, "--out", out("reshard")}},
            {"export data", {"data", "export", data, "--out", out("export")}},
            {"stage", {"data", "stage", data, "--to", out("stage")}},
            {"verify checkpoints", {"ckpt", "verify", run}},
            {"export weights", {"export", run, "--out", out("weights")}},
            {"eval", {"eval", run, "--data", data}},
            {"predict",
             {"predict", run, "--data", data, "--out", folder / ("outputs" + mark + ".npy")}},
            {"bench io",
             Words{"bench", "io", "--data", data, "--threads", "1", "--cache", "hot"} +
                 Words{"--rounds", "1", "--pass", "1MiB"}},
            {"bench comm",
             Words{"bench", "comm", "--np", "2", "--oversubscribe", "-b", "4KiB", "-e", "8KiB"} +
                 Words{"--beside", "none", "--rounds", "1"}},
            {"verify ranks",
             Words{"verify", "--data", data, "--ranks", "1,2", "--steps", "2"} +
                 Words{"--model", "mlp", "--batch", "48"}},
            {"train", train(out("run")) + on_ranks(2)}};
    }
};

TEST_F(Lasting, ShowOneLiveLineThatFitsTwentyColumns) {
    for (const auto& [name, words] : commands("-narrow")) {
        SCOPED_TRACE(name);
        const Screened result = run_on_terminal(words, 20, "xterm");
        EXPECT_EQ(result.exit_code, 0) << result.shown;
        const auto lines = live_lines(result.shown);
        EXPECT_THAT(lines, testing::Contains(has(" % "))) << result.shown;
        EXPECT_THAT(lines, testing::Each(testing::SizeIs(testing::Le(19u)))) << result.shown;
        std::string rest = result.shown;
        for (std::size_t at = 0; (at = rest.find("\r\x1b[K")) != rest.npos;) rest.erase(at, 4);
        EXPECT_EQ(rest.find('\x1b'), rest.npos) << result.shown;
    }
}

TEST_F(Lasting, ShowNoControlCharacterOnADumbTerminal) {
    const auto all = commands("-dumb");
    for (const std::string name : {"pack", "verify checkpoints", "bench comm"}) {
        SCOPED_TRACE(name);
        const Screened result = run_on_terminal(all.at(name), 80, "dumb");
        EXPECT_EQ(result.exit_code, 0) << result.shown;
        EXPECT_EQ(result.shown.find('\x1b'), result.shown.npos) << result.shown;
        for (std::size_t at = 0; (at = result.shown.find('\r', at)) != result.shown.npos; ++at)
            ASSERT_EQ(result.shown[at + 1], '\n') << result.shown;
    }
}

TEST_F(Lasting, ShowNoControlCharacterInAFile) {
    const auto all = commands("-file");
    for (const std::string name : {"pack", "verify checkpoints"}) {
        SCOPED_TRACE(name);
        const std::string result = output_of(run_lockstep(all.at(name), {{"TERM", "xterm"}}));
        EXPECT_EQ(result.find_first_of("\r\x1b"), result.npos) << result;
    }
}

}  // namespace
}  // namespace lockstep::test
