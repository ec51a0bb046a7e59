// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/signals.hpp"

#include "lockstep/core/process.hpp"

#include "support/unit.hpp"

#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

/// Exit code of a child that does `action`, or 128 + the signal that ended it.
template <class Action>
int exit_of_child(Action&& action) {
    const auto child = ::fork();
    if (child == 0) {
        action();
        ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

TEST(SignalGuard, TurnsSignalsIntoARequest) {
    for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP}) {
        const SignalGuard guard;
        EXPECT_EQ(stop_requested(), StopRequest::none);
        ::raise(signal);
        EXPECT_EQ(stop_requested(), StopRequest::save_and_requeue) << signal;
        ::raise(signal);
        EXPECT_EQ(stop_requested(), StopRequest::save_and_requeue) << signal;
    }
}

TEST(SignalGuard, KeepsTheStrongestRequest) {
    const SignalGuard guard;
    ::raise(SIGUSR1);
    ::raise(SIGINT);
    EXPECT_EQ(stop_requested(), StopRequest::interrupt);
    ::raise(SIGUSR2);
    EXPECT_EQ(stop_requested(), StopRequest::interrupt);
}

TEST(SignalGuard, EndsTheProcessAtTheSecondInterruptAndWhileNothingHasBegunAtTheSecondRequest) {
    EXPECT_EQ(exit_of_child([] {
                  const SignalGuard guard(SignalGuard::SecondRequest::ends);
                  ::raise(SIGTERM);
                  ::usleep(1'100'000);
                  ::raise(SIGTERM);
              }),
              75);
    EXPECT_EQ(exit_of_child([] {
                  const SignalGuard guard;
                  ::raise(SIGINT);
                  ::raise(SIGINT);
                  if (stop_requested() != StopRequest::interrupt) ::_exit(1);
                  ::usleep(1'100'000);
                  ::raise(SIGINT);
              }),
              130);
    EXPECT_EQ(exit_of_child([] {
                  const SignalGuard guard;
                  ::raise(SIGINT);
                  ::raise(SIGINT);
                  ::_exit(7);
              }),
              7);
}

TEST(SignalGuard, CountsRequestsThatAreNotTheSameAndShowsTheLastSignalInTheMirror) {
    const SignalGuard guard;
    std::atomic<std::uint64_t> word{0};
    mirror_signals_to(&word);
    EXPECT_EQ(stop_requests(), 0);
    ::raise(SIGTERM);
    ::raise(SIGUSR2);
    EXPECT_EQ(stop_requests(), 1);
    ::usleep(1'100'000);
    ::raise(SIGTERM);
    EXPECT_EQ(stop_requests(), 2);
    EXPECT_EQ(word, static_cast<std::uint64_t>(SIGTERM));
    mirror_signals_to(nullptr);
    ::raise(SIGUSR1);
    EXPECT_EQ(word, static_cast<std::uint64_t>(SIGTERM));
}

TEST(Signals, AReaderThatIsGoneEndsOnlyOthers) {
    const auto write_to_nobody = [] {
        int ends[2];
        if (::pipe(ends) != 0) ::_exit(1);
        ::close(ends[0]);
        return ::write(ends[1], "x", 1) == -1 && errno == EPIPE;
    };
    EXPECT_EQ(exit_of_child([&] { write_to_nobody(); }), 128 + SIGPIPE);
    EXPECT_EQ(exit_of_child([&] {
                  outlive_readers();
                  ::_exit(write_to_nobody() ? 7 : 1);
              }),
              7);
    EXPECT_EQ(exit_of_child([&] {
                  outlive_readers();
                  become_process({"bash", "-c", "kill -PIPE $$"});
              }),
              128 + SIGPIPE);
}

TEST(Signals, AFileAtItsLimitEndsOnlyOthers) {
    const TempDir folder;
    const auto write_too_much = [&] {
        const rlimit none{0, 0};
        const int file = ::open((folder / "x").c_str(), O_CREAT | O_WRONLY, 0600);
        return ::setrlimit(RLIMIT_FSIZE, &none) == 0 && ::write(file, "x", 1) == -1 &&
               errno == EFBIG;
    };
    EXPECT_EQ(exit_of_child([&] { write_too_much(); }), 128 + SIGXFSZ);
    EXPECT_EQ(exit_of_child([&] {
                  outlive_file_limits();
                  ::_exit(write_too_much() ? 7 : 1);
              }),
              7);
}

TEST(SignalGuard, PutsTheOldHandlersBack) {
    EXPECT_EQ(exit_of_child([] {
                  ::signal(SIGUSR2, SIG_IGN);
                  { const SignalGuard guard; }
                  ::raise(SIGUSR2);
                  ::raise(SIGTERM);
              }),
              128 + SIGTERM);
}

TEST(HeldStopSignals, WaitForAGuardAndWaitAgainAfterIt) {
    EXPECT_EQ(exit_of_child([] {
                  hold_stop_signals();
                  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP}) ::raise(signal);
                  {
                      const SignalGuard guard;
                      if (stop_requested() != StopRequest::save_and_requeue) ::_exit(1);
                  }
                  ::raise(SIGTERM);
                  ::_exit(3);
              }),
              3);
}

// A library's threads, begun while signals came through, outlive the guard with that mask.
TEST(HeldStopSignals, DoNotEndTheProcessByAThreadThatOutlivesAGuard) {
    EXPECT_EQ(exit_of_child([] {
                  hold_stop_signals();
                  {
                      const SignalGuard guard;
                      std::thread([] {
                          for (;;) ::pause();
                      }).detach();
                  }
                  for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGHUP}) {
                      ::kill(::getpid(), signal);
                      ::usleep(5'000);  // the thread takes it now, or nobody does
                  }
                  ::_exit(3);
              }),
              3);
}

TEST(HeldStopSignals, ReachAChild) {
    EXPECT_EQ(exit_of_child([] {
                  hold_stop_signals();
                  const auto result = run_process({"bash", "-c", "kill -TERM $$; sleep 60"});
                  ::_exit(result.exit_code == 128 + SIGTERM ? 0 : 1);
              }),
              0);
}

TEST(SignalGuard, LeavesAHangupThatNohupIgnores) {
    EXPECT_EQ(exit_of_child([] {
                  ::signal(SIGHUP, SIG_IGN);
                  hold_stop_signals();
                  const SignalGuard guard;
                  ::raise(SIGHUP);
                  ::_exit(stop_requested() == StopRequest::none ? 0 : 1);
              }),
              0);
}

TEST(SignalGuard, LetsSystemCallsGoOn) {
    const SignalGuard guard;
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const auto parent = ::getpid();
    const auto child = ::fork();
    if (child == 0) {
        ::kill(parent, SIGUSR1);
        ::usleep(20'000);
        ::_exit(::write(pipe[1], "x", 1) == 1 ? 0 : 1);
    }
    char byte = 0;
    EXPECT_EQ(::read(pipe[0], &byte, 1), 1);
    EXPECT_EQ(stop_requested(), StopRequest::save_and_requeue);
    ::waitpid(child, nullptr, 0);
    ::close(pipe[0]);
    ::close(pipe[1]);
}

/// Starts a parent whose child asks to die with it, kills the parent, and returns whether the
/// child's end of the pipe closes.
TEST(DieWithParent, EndsAChildWhoseParentIsKilledOrGoneAlready) {
    std::array<int, 2> pipe{};
    ASSERT_EQ(::pipe(pipe.data()), 0);
    const auto parent = ::fork();
    if (parent == 0) {
        const auto self = ::getpid();
        if (::fork() == 0) {
            die_with_parent(self);
            if (::write(pipe[1], "r", 1) != 1) ::_exit(1);
        }
        for (;;) ::pause();
    }
    ::close(pipe[1]);
    char byte = 0;
    ASSERT_EQ(::read(pipe[0], &byte, 1), 1);
    ::kill(parent, SIGKILL);
    ::waitpid(parent, nullptr, 0);
    EXPECT_EQ(::read(pipe[0], &byte, 1), 0);
    ::close(pipe[0]);
    EXPECT_EQ(exit_of_child([] { die_with_parent(1 << 30); }), 137);
}

}  // namespace
}  // namespace lockstep
