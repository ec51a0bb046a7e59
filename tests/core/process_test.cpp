// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/process.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"

#include "support/unit.hpp"

#include <array>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

TEST(TalkingProcess, AnswersLineByLine) {
    TalkingProcess child({"sh", "-c", "while read -r word; do echo \"<$word>\"; done; echo bye"});
    child.say("one");
    EXPECT_EQ(child.hear(now_s() + 20), "<one>");
    child.say("two\nthree");
    EXPECT_EQ(child.hear(now_s() + 20), "<two>");
    EXPECT_EQ(child.hear(now_s() + 20), "<three>");
    EXPECT_EQ(child.hear(now_s() + 0.05), std::nullopt) << "the deadline";
}

TEST(TalkingProcess, IsSilentOnceItHasEnded) {
    TalkingProcess child({"true"});
    EXPECT_EQ(child.hear(now_s() + 20), std::nullopt);
    child.say("is anybody there?");
    child.say(std::string(1 << 20, 'x'));
    EXPECT_EQ(caught_code([] { TalkingProcess({"no-such-program"}); }), "E610");
}

TEST(RunProcess, ReturnsExitCodeAndOutput) {
    const auto result = run_process({"sh", "-c", "echo out; echo err >&2; exit 3"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_EQ(result.output, "out\nerr\n");
    EXPECT_EQ(run_process({"sh", "-c", "kill -9 $$"}).exit_code, 128 + SIGKILL);
    EXPECT_EQ(run_process({"sh", "-c", "kill -TERM $$"}).exit_code, 128 + SIGTERM);
    EXPECT_EQ(run_process({"head", "-c", "3000000", "/dev/zero"}).output.size(), 3'000'000u)
        << "more than a pipe holds";
}

TEST(RunProcess, GivesArgumentsAsTheyAreAndNoInput) {
    const auto result = run_process({"printf", "%s|", "a b", "$HOME", "*", "\"", ""});
    EXPECT_EQ(result.output, "a b|$HOME|*|\"||");
    const auto silent = run_process({"cat"}, {}, 20);
    EXPECT_EQ(silent.exit_code, 0);
    EXPECT_EQ(silent.output, "");
}

TEST(RunProcess, AddsToTheEnvironment) {
    ::setenv("LOCKSTEP_TEST_KEPT", "kept", 1);
    ::setenv("LOCKSTEP_TEST_CHANGED", "old", 1);
    const auto result = run_process({"sh", "-c", "echo $LOCKSTEP_TEST_KEPT $LOCKSTEP_TEST_CHANGED"},
                                    {{"LOCKSTEP_TEST_CHANGED", "new"}});
    EXPECT_EQ(result.output, "kept new\n");
    ::unsetenv("LOCKSTEP_TEST_KEPT");
    ::unsetenv("LOCKSTEP_TEST_CHANGED");
}

// Also one that closed its output.
TEST(RunProcess, EndsAChildAndItsChildrenAfterTheTimeLimit) {
    for (const char* script : {"sleep 100 & sleep 100", "exec >/dev/null 2>&1; sleep 100"}) {
        const auto before = now_s();
        EXPECT_THAT(caught_text([&] {
                        run_process({"sh", "-c", script}, {}, 0.2);
                    }),
                    has("E611: ", "'sh' took longer than 200ms"))
            << script;
        EXPECT_LT(now_s() - before, 20) << script;
    }
}

TEST(RunProcess, CallsMeanwhileUntilTheChildEndsAndEndsItWhenThatThrows) {
    const TempDir folder;
    int calls = 0;
    const auto end_at_third = [&] {
        if (++calls == 3) folder.file("go", "");
    };
    const std::string until = "until [ -e " + (folder / "go").string() + " ]; do sleep 0.05; done";
    const auto result = run_process({"sh", "-c", until + "; echo done"}, {}, 60, end_at_third);
    EXPECT_EQ(result.output, "done\n");
    EXPECT_GE(calls, 3);
    const double begin = now_s();
    const auto give_up = [] { throw Error("E242", "enough"); };
    EXPECT_THROW(run_process({"sleep", "60"}, {}, 60, give_up), Error);
    EXPECT_LT(now_s() - begin, 30);
    EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
}

TEST(RunProcess, NamesAProgramThatIsNotThereOrNone) {
    for (const char* program : {"no-such-program-here", "/no/such/program"}) {
        EXPECT_EQ(caught_code([&] { run_process({program}); }), "E610") << program;
        EXPECT_EQ(caught_code([&] { become_process({program}); }), "E610") << program;
    }
    EXPECT_THAT(caught_text([] { run_process({"no-such-program-here"}); }),
                HasSubstr("cannot start 'no-such-program-here'"));
    const TempDir folder;
    const auto path = folder.file("junk", "\x7f not a program");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
    EXPECT_EQ(run_process({path.string()}).exit_code, 127);
}

TEST(RunProcess, ChildDiesWithItsParent) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const auto parent = ::fork();
    if (parent == 0) {
        ::close(pipe[0]);
        const auto descriptor = std::to_string(pipe[1]);
        run_process({"sh", "-c", "echo r >&" + descriptor + "; exec sleep 1000"});
        ::_exit(0);
    }
    ::close(pipe[1]);
    std::array<char, 16> ready{};
    ASSERT_EQ(::read(pipe[0], ready.data(), ready.size()), 2);
    ::kill(parent, SIGKILL);
    ::waitpid(parent, nullptr, 0);
    EXPECT_EQ(::read(pipe[0], ready.data(), ready.size()), 0);  // returns when the last holder dies
    ::close(pipe[0]);
}

/// The exit code of a child that does `action`, or 128 + the signal that ended it.
int exit_of(const std::function<void()>& action) {
    const pid_t child = ::fork();
    if (child == 0) {
        action();
        end_process(9);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(BecomeProcess, ReplacesThisProcess) {
    const std::vector<std::string> command{"sh", "-c", "exit $LOCKSTEP_TEST_CODE"};
    EXPECT_EQ(exit_of([&] { become_process(command, {{"LOCKSTEP_TEST_CODE", "42"}}); }), 42);
}

TEST(FindProgram, LooksOnThePathAndTakesNoFolderForAProgram) {
    EXPECT_THAT(find_program("sh"), EndsWith("/sh"));
    EXPECT_EQ(find_program("/bin/sh"), "/bin/sh");
    EXPECT_EQ(find_program("no-such-program-here"), "");
    EXPECT_EQ(find_program(""), "");
    const TempDir folder;
    std::filesystem::create_directory(folder / "mpirun");
    const std::string before = ::getenv("PATH");
    ::setenv("PATH", folder.path().c_str(), 1);
    EXPECT_EQ(find_program("mpirun"), "");
    ::setenv("PATH", before.c_str(), 1);
    EXPECT_EQ(find_program(folder / "mpirun"), "");
    EXPECT_THAT(this_executable(), HasSubstr("test_core_"));
}

struct TestPipe {
    TestPipe() {
        std::array<int, 2> ends{};
        EXPECT_EQ(::pipe(ends.data()), 0);
        read_end = UniqueFd(ends[0]);
        write_end = UniqueFd(ends[1]);
    }
    std::optional<std::size_t> read(double patience_s) {
        return timed_read(
            read_end.value(), std::as_writable_bytes(std::span(buffer)), now_s() + patience_s);
    }
    UniqueFd read_end, write_end;
    std::string buffer = "....";
};

// Signals that come all the time while it lives, and interrupt system calls.
class Interruptions {
  public:
    Interruptions() {
        struct sigaction quiet {};
        quiet.sa_handler = [](int) { count = count + 1; };
        ::sigaction(SIGALRM, &quiet, &before_);
        const itimerval often{{0, 5000}, {0, 5000}};
        ::setitimer(ITIMER_REAL, &often, nullptr);
    }
    ~Interruptions() {
        const itimerval never{};
        ::setitimer(ITIMER_REAL, &never, nullptr);
        ::sigaction(SIGALRM, &before_, nullptr);
    }
    static inline volatile std::sig_atomic_t count = 0;

  private:
    struct sigaction before_ {};
};

TEST(TimedRead, GivesWhatThereIsAndThenTheEnd) {
    TestPipe pipe;
    ASSERT_EQ(::write(pipe.write_end.value(), "abcdefg", 7), 7);
    EXPECT_EQ(pipe.read(20), 4u);
    EXPECT_EQ(pipe.buffer, "abcd");
    EXPECT_EQ(pipe.read(20), 3u);
    EXPECT_EQ(pipe.buffer, "efgd");
    pipe.write_end.reset();
    EXPECT_EQ(pipe.read(20), 0u);
}

TEST(TimedRead, EndsAtTheDeadlineOrOfADescriptorThatIsNone) {
    TestPipe pipe;
    const double before_s = now_s();
    EXPECT_EQ(pipe.read(0.05), std::nullopt);
    EXPECT_GE(now_s() - before_s, 0.05);
    ASSERT_EQ(::write(pipe.write_end.value(), "a", 1), 1);
    EXPECT_EQ(pipe.read(-1), std::nullopt) << "it has passed, whatever there is";
    EXPECT_EQ(pipe.read(1e12), 1u) << "more than poll() can count";
    std::array<std::byte, 4> out{};
    EXPECT_EQ(timed_read(1 << 20, out, now_s() + 20), 0u);
}

TEST(TimedRead, SignalsNeitherEndNorProlongTheWait) {
    TestPipe pipe;
    const Interruptions interruptions;
    const double before_s = now_s();
    EXPECT_EQ(pipe.read(0.1), std::nullopt);
    EXPECT_GE(now_s() - before_s, 0.1);
    EXPECT_LT(now_s() - before_s, 20);
    for (int turn = 0; turn < 100 && Interruptions::count < 2; ++turn)
        EXPECT_EQ(pipe.read(0.1), std::nullopt);
    EXPECT_GE(Interruptions::count, 2);
}

class ForeignEnds : public InFolder {
  protected:
    void note(const std::string& text) { std::ofstream(said_, std::ios::app) << text << "\n"; }

    /// The exit code of a child that does `action` between two guards.
    int exit_of_guarded(const std::function<void()>& action) {
        return exit_of([&] {
            const ForeignEnd outer([&](const Error& error) { note("outer " + error.code()); });
            const ForeignEnd inner([&](const Error& error) {
                note(error.what());
                throw std::runtime_error("no reason to end otherwise");
            });
            action();
        });
    }
    std::string said() const { return content_of(said_); }

    const fs::path said_ = folder_ / "said";
};

TEST_F(ForeignEnds, AreErrorsWhateverTheirCode) {
    const std::function<void()> ends[] = {[] { std::exit(0); },
                                          [] { ::_exit(0); },
                                          [] { std::_Exit(0); },
                                          [] { std::quick_exit(0); }};
    for (const auto& end : ends) {
        EXPECT_EQ(exit_of_guarded(end), 70);
        EXPECT_EQ(said(), "the model ended the process: it called exit(0)\nouter E713\n");
        fs::remove(said_);
    }
    EXPECT_EQ(exit_of_guarded([] { std::exit(3); }), 70);
    EXPECT_THAT(said(), HasSubstr("exit(3)"));
}

TEST_F(ForeignEnds, MeanWhatTheInnermostGuardSays) {
    EXPECT_EQ(exit_of([&] {
                  const auto tell = [&](const Error& error) { note(error.text()); };
                  const ForeignEnd outer(tell);
                  const ForeignEnd inner(tell, [](int status) {
                      return Error("E604", "a library ended it with " + std::to_string(status));
                  });
                  std::exit(1);
              }),
              78);
    EXPECT_THAT(said(), has("E604: a library ended it with 1\n", Not(HasSubstr("E713"))));
}

// Else the log would be gone before it is told.
TEST_F(ForeignEnds, AreToldByALogThatIsOpenedLater) {
    EXPECT_EQ(exit_of([&] {
                  const ForeignEnd guard([](const Error& error) { write_error(error.what()); });
                  open_log({.directory = folder_.path(), .keeps_stderr = true});
                  const std::vector<std::string> other(1000, "what would take the log's memory");
                  ::dup2(::open(said_.c_str(), O_WRONLY | O_CREAT, 0600), error_descriptor());
                  std::exit(0);
              }),
              70);
    EXPECT_EQ(said(), "the model ended the process: it called exit(0)");
}

TEST_F(ForeignEnds, AreNotOurOwn) {
    EXPECT_EQ(exit_of_guarded([] { end_process(5); }), 5);
    EXPECT_EQ(exit_of([&] {
                  {
                      const ForeignEnd over([&](const Error& error) { note(error.what()); });
                  }
                  std::exit(6);
              }),
              6);
    EXPECT_EQ(exit_of([] { ::_exit(4); }), 4);
    EXPECT_EQ(said(), "");
}

TEST_F(ForeignEnds, AreNotThoseOfChildren) {
    EXPECT_EQ(exit_of_guarded([&] {
                  const int first = exit_of([] { std::exit(3); });
                  end_process(first * 10 + exit_of([] { ::_exit(2); }));
              }),
              32);
    EXPECT_EQ(said(), "");
}

}  // namespace
}  // namespace lockstep
