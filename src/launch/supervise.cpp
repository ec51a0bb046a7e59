// SPDX-License-Identifier: Apache-2.0
// `train --np N` starts mpirun and supervises it, because mpirun alone does three things badly. It
// gives ranks a second to end after TERM, leaves its files in /dev/shm when it is killed, and waits
// for ever if its ranks never start or end without an error.
//
//     terminal, SLURM, a person       this process             mpirun             ranks
//     TERM, HUP, USR1, USR2,
//     first Ctrl-C: ranks work    --> sigtimedwait -- USR2 --> passes it on  -->  save, end
//                   not yet       --> sigtimedwait -- TERM, KILL --> gone         (nothing was
//                   done)
//     Ctrl-C a second later       --> sigtimedwait -- KILL --> gone
//     kill -9                     --> gone             the kernel kills mpirun, too
//
// mpirun has its own process group: Ctrl-C on the terminal must reach the supervisor alone;
// otherwise ranks would get it twice, with two meanings.
//
// What must never happen:
// - A signal is lost between "has the child ended?" and "wait for a signal": they are blocked all
//   the time and taken by sigtimedwait() only, SIGCHLD among them.
// - A terminal or pipe that takes no more of what mpirun says keeps signals waiting: see
//   LauncherOutput.
// - A reader that ends ends a training (`| head`): mpirun would crash without a stdout.
// - A signal comes to ranks that have no handler yet: it would kill them, and say so. They have one
//   once they have begun, which the launch's owner knows how to see.
// - An end by a signal looks like an exit code of the run: it becomes E612, which says what killed
//   it.
// - A wait without an end: a launcher whose ranks do not begin, or no longer live, is ended, by a
//   TERM and then by KILL.
//
// Tested: launch/supervise_test.cpp; e2e/launch_test.cpp, e2e/resume_test.cpp and cluster/life_test
// with whole runs; soak/launch.

#include "lockstep/launch/supervise.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/process.hpp"
#include "lockstep/core/signals.hpp"

#include "launcher.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double pace_s = 0.25;

/// The signals that are passed on, blocked so that wait() sees them and nothing else does.
class WatchedSignals {
  public:
    WatchedSignals() {
        sigemptyset(&watched_);
        for (const int signal : {SIGUSR1, SIGUSR2, SIGTERM, SIGINT, SIGCHLD})
            sigaddset(&watched_, signal);
        struct sigaction hangup {};
        sigaction(SIGHUP, nullptr, &hangup);
        if (hangup.sa_handler != SIG_IGN) sigaddset(&watched_, SIGHUP);  // else: nohup
        sigprocmask(SIG_BLOCK, &watched_, &before);
        arrival_ = UniqueFd(::signalfd(-1, &watched_, SFD_CLOEXEC));
    }
    ~WatchedSignals() { sigprocmask(SIG_SETMASK, &before, nullptr); }
    WatchedSignals& operator=(WatchedSignals&&) = delete;

    /// 0 after a while without any, or sooner if one of the two is ready.
    int wait(const pollfd& one, const pollfd& other) const {
        std::array awaited{pollfd{arrival_.value(), POLLIN, 0}, one, other};
        ::poll(awaited.data(), awaited.size(), static_cast<int>(1e3 * pace_s));
        const timespec at_once{};
        const int signal = sigtimedwait(&watched_, nullptr, &at_once);
        return signal < 0 ? 0 : signal;
    }

    sigset_t before;  ///< signals that were blocked

  private:
    sigset_t watched_;
    UniqueFd arrival_;  // readable while one waits to be taken
};

/// Counts the time that passes while this process runs.
class LookPace {
  public:
    /// Returns true if another `pace_s` is over. Time in which this process was stopped does not
    /// count.
    bool is_over() {
        const double before_s = std::exchange(looked_s_, now_s());
        passed_s_ += std::min(looked_s_ - before_s, pace_s);
        if (passed_s_ < pace_s) return false;
        passed_s_ = 0;
        return true;
    }

  private:
    double looked_s_ = now_s(), passed_s_ = 0;
};

std::string meaning_of(int signal) {
    switch (signal) {
        case SIGKILL:
            return "a rank or mpirun was killed: by a person, by the job's limits, by the kernel "
                   "because memory ran out (see dmesg), or by mpirun after another rank's error "
                   "above";
        case SIGXFSZ:
            return "a file grew beyond the limit of this shell or job (ulimit -f)";
        case SIGXCPU:
            return "the limit of processor time of this shell or job is used up (ulimit -t)";
        case SIGBUS:
            return "a rank crashed: a file that it had mapped became shorter, or /dev/shm is full";
        case SIGSEGV:
        case SIGABRT:
        case SIGILL:
        case SIGFPE:
            return "a rank crashed; 'lockstep logs RUN --first-error' shows its last output";
        default:
            return "somebody sent it to mpirun or to a rank, which does not handle it";
    }
}

std::string next_start(const SupervisedRanks& ranks) {
    return ranks.tell_next_start ? ranks.tell_next_start() : "start the same command again";
}

// `rank` is the one whose end mpirun told, or "".
Error killed(int signal, RanksStage stage, const SupervisedRanks& ranks, const std::string& rank) {
    const std::string_view fault = launch_fault(128 + signal);
    if (stage == RanksStage::begun || fault.empty() || !rank.empty())
        return Error("E612",
                     fmt::format("{} ended by signal {} ({})",
                                 rank.empty() ? "the ranks were" : rank + " was",
                                 signal,
                                 ::strsignal(signal)),
                     meaning_of(signal),
                     next_start(ranks));
    return Error(
        "E612",
        fmt::format("mpirun ended with exit code {}, which has two meanings", 128 + signal),
        fmt::format("a rank was ended by signal {} ({}): {}; or, by Open MPI 4.1, {}: mpirun's "
                    "output above shows which",
                    signal,
                    ::strsignal(signal),
                    meaning_of(signal),
                    fault),
        next_start(ranks));
}

int exit_code_of(int status,
                 bool interrupted,
                 RanksStage stage,
                 const SupervisedRanks& ranks,
                 const std::string& ended_rank) {
    constexpr int by_interrupt = static_cast<int>(ExitCode::interrupted);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    const bool is_of_ranks = is_exit_code_of_ranks(code);
    const bool is_killed = is_of_ranks && code > 128 && code != by_interrupt;
    const bool has_saved = code == static_cast<int>(ExitCode::saved_please_requeue);
    if (interrupted && is_killed && ranks.are_here && ranks.tell_early_end)
        return ranks.tell_early_end(ExitCode::interrupted);
    if (interrupted && (is_killed || has_saved)) return by_interrupt;
    if (WIFSIGNALED(status) && is_crash(WTERMSIG(status)))
        throw launcher_crashed(WTERMSIG(status), stage, next_start(ranks));
    if (is_killed && WIFSIGNALED(status)) throw killed(code - 128, RanksStage::begun, ranks, "");
    if (is_killed) throw killed(code - 128, stage, ranks, ended_rank);
    if (!is_of_ranks) throw launcher_failed(code, stage, next_start(ranks));
    return code;
}

/// Reactions of a launch to signals and to the passing of time.
class Supervision {
  public:
    Supervision(const LauncherProcess& launcher, const SupervisedRanks& ranks)
        : launcher_(launcher), ranks_(ranks) {}

    void take(int signal) {
        constexpr double same_s = 1;  // timeout(1) sends INT to this process and to its group
        if (signal == SIGINT && interrupts_ > 0 && now_s() - first_interrupt_s_ < same_s) return;
        if (signal == SIGINT && ++interrupts_ > 1) return launcher_.send(SIGKILL);
        if (signal == SIGINT) first_interrupt_s_ = now_s();
        if (first_signal_ == 0) first_signal_ = signal;
        is_owed_ = true;
        deliver();
    }

    void look() {
        if (ending_since_s_) {
            if (now_s() - *ending_since_s_ > ranks_.limits.end_s) launcher_.send(SIGKILL);
            return;
        }
        waited_s_ += pace_s;
        if (is_owed_) deliver();
        look_for_ranks();
        if (!ranks_.are_here && ranks_.have_given_up && ranks_.have_given_up())
            given_up_s_ += pace_s;
        if (given_up_s_ > ranks_.limits.given_up_s) return launcher_.send(SIGKILL);
        if (ranks_.have_begun && !have_begun() && waited_s_ > ranks_.limits.begin_s)
            end_for(fmt::format("the ranks have not begun after {:.0f} s", waited_s_));
    }

    /// Returns true if the user at the terminal does not want to wait.
    bool is_hurried() const { return interrupts_ > 1; }

    /// `ended_rank`: the first one whose end the launcher told, or "".
    int outcome(const std::string& ended_rank) const {
        if (fault_) throw *fault_;
        const int status = launcher_.status();
        if (!is_ended_on_request_)
            return exit_code_of(status, interrupts_ > 0, stage(), ranks_, ended_rank);
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        const auto usual = interrupts_ > 0 ? ExitCode::interrupted : ExitCode::saved_please_requeue;
        if (code == static_cast<int>(ExitCode::saved_please_requeue))
            return static_cast<int>(usual);
        const bool is_ranks_word = code >= static_cast<int>(ExitCode::usage) &&
                                   code <= static_cast<int>(ExitCode::config) &&
                                   code != static_cast<int>(ExitCode::peer_lost);
        if (is_ranks_word) return code;
        if (ranks_.tell_early_end) return ranks_.tell_early_end(usual);
        const bool has_saved = ranks_.have_begun || interrupts_ > 0;
        return has_saved ? static_cast<int>(usual) : 128 + first_signal_;
    }

  private:
    RanksStage stage() const {
        if (!ranks_.have_begun) return RanksStage::unknown;
        return have_begun_ || ranks_.have_begun() ? RanksStage::begun : RanksStage::not_begun;
    }

    // Ranks elsewhere may begin unseen, where this host does not see their files.
    bool have_begun() {
        constexpr double unseen_s = 60;
        have_begun_ = have_begun_ || (!ranks_.are_here && waited_s_ > unseen_s) ||
                      (ranks_.have_begun && ranks_.have_begun());
        return have_begun_;
    }

    void deliver() {
        if (ending_since_s_) return;
        if (have_begun()) {
            launcher_.send(SIGUSR2);
            is_owed_ = false;
        } else if (ranks_.are_here || !ranks_.have_begun) {
            is_ended_on_request_ = true;
            end();
        }
    }

    void look_for_ranks() {
        if (!ranks_.are_here) return;
        const bool are_gone = !launcher_.has_living_children().value_or(true);
        gone_s_ = are_gone ? gone_s_ + pace_s : 0;
        if (gone_s_ > ranks_.limits.gone_s)
            end_for(fmt::format("mpirun has had no living rank for {:.0f} s", gone_s_));
        else if (gone_s_ > ranks_.limits.gone_s / 2)
            launcher_.send(SIGCONT);  // a stopped one sees their end only now
    }

    void end_for(const std::string& what) {
        fault_.emplace(
            "E691",
            what + ": it was ended",
            "its output above, if any, says more; usual causes are a full /dev/shm and limits",
            "'lockstep doctor --np N' looks for causes; " + next_start(ranks_));
        end();
    }

    void end() {
        ending_since_s_ = now_s();
        launcher_.send(SIGTERM);
    }

    const LauncherProcess& launcher_;
    const SupervisedRanks& ranks_;
    int interrupts_ = 0, first_signal_ = 0;
    bool is_owed_ = false, have_begun_ = false, is_ended_on_request_ = false;
    double waited_s_ = 0, gone_s_ = 0, given_up_s_ = 0, first_interrupt_s_ = 0;
    std::optional<double> ending_since_s_;
    std::optional<Error> fault_;
};

// Whoever has something to save goes on; without a reader others end, as by SIGPIPE.
void meet_lost_stdout(PassedPipe& words,
                      LauncherOutput& output,
                      Supervision& supervision,
                      const SupervisedRanks& ranks) {
    const int reason = words.new_failure();
    if (reason == 0) return;
    if (ranks.have_begun)
        output.note(fmt::format("warn: {} ('lockstep logs RUN')", lost_stdout_text(reason)));
    else if (reason == EPIPE)
        supervision.take(SIGPIPE);
}

// All, however long a reader takes, but for somebody who does not want to wait for that.
void pass_rest_on(PassedPipe& words,
                  LauncherOutput& output,
                  const WatchedSignals& signals,
                  const Supervision& supervision) {
    for (; words.has_more() || output.has_more(); words.move(), output.move()) {
        const bool has_no_room =
            ((words.awaited().events | output.awaited().events) & POLLOUT) != 0;
        if (has_no_room && supervision.is_hurried()) return;
        const int signal = signals.wait(words.awaited(), output.awaited());
        if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) return;
    }
}

int supervise_with(const WatchedSignals& signals,
                   const std::vector<std::string>& argv,
                   const std::map<std::string, std::string>& environment,
                   const SupervisedRanks& ranks) {
    std::optional<OrphanWatch> orphans(std::in_place);
    Child child = start_child(argv, environment, ChildPipes::apart, &signals.before);
    PassedPipe words(std::move(child.output), STDOUT_FILENO);
    LauncherOutput output(std::move(child.errors), ranks.log);
    LauncherProcess launcher(child.pid);
    Supervision supervision(launcher, ranks);
    for (LookPace pace; !launcher.has_ended();) {
        const int signal = signals.wait(words.awaited(), output.awaited());
        if (signal != 0 && signal != SIGCHLD) supervision.take(signal);
        words.move();
        output.move();
        meet_lost_stdout(words, output, supervision, ranks);
        if (!pace.is_over()) continue;
        supervision.look();
        output.settle();
    }
    orphans.reset();  // whoever could still write
    pass_rest_on(words, output, signals, supervision);
    if (ranks.have_begun) meet_lost_stdout(words, output, supervision, ranks);
    const int code = supervision.outcome(output.ended_rank());
    const int reason = words.failure();
    if (code == 0 && !ranks.have_begun && reason != 0 && reason != EPIPE)
        throw system_error("write", "stdout", reason);  // a result is lost
    return code;
}

}  // namespace

int supervise_ranks(LaunchRequest request, SupervisedRanks ranks) {
    const bool are_here = ranks.are_here = request.hosts.empty();
    if (are_here && !request.oversubscribe) check_cores(request.np);
    const int ranks_here = are_here ? request.np : 1;
    settle_limits(ranks_here);
    ready_for_mpirun();
    const WatchedSignals signals;  // before there is a folder, which a signal would leave behind
    const LaunchFolder folder(ranks_here);
    request.folder = folder.path();
    std::map<std::string, std::string> environment;
    if (::isatty(STDOUT_FILENO) == 1) environment[live_variable] = "1";
    if (are_here) environment[launcher_variable] = std::to_string(::getpid());
    return supervise_with(signals, mpirun_line(request, Environment()), environment, ranks);
}

int supervise(const std::vector<std::string>& argv,
              const std::map<std::string, std::string>& environment,
              const SupervisedRanks& ranks) {
    return supervise_with(WatchedSignals(), argv, environment, ranks);
}

}  // namespace lockstep
