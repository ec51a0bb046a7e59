// SPDX-License-Identifier: Apache-2.0
// Ranks as child processes, to be stopped and killed.
#pragma once

#include "lockstep/core/signals.hpp"
#include "lockstep/run/watchdog.hpp"

#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

namespace lockstep::test {

inline constexpr FlightCall call{.op = FlightOp::barrier};

/// A rank in a process of its own: its recorder and the channel to use.
struct Rank {
    FlightRecorder recorder;
    std::uint32_t channel;
    std::vector<Stage> stages;
    Watchdog watchdog;

    Rank(const TempDir& folder,
         int rank,
         int ranks,
         double timeout_s,
         const NodeWatch* nodes = nullptr)
        : recorder(folder.path(), rank, ranks, {.entries = 64}),
          channel(recorder.add_channel("test")),
          watchdog(
              recorder,
              WatchdogSettings::within(timeout_s),
              [this](const WatchReport& report) { stages.push_back(report.stage); },
              nodes) {
        recorder.mark_running();
    }
    void finish_one() { recorder.end(recorder.enqueue(channel, call)); }
    void wait_in_one() { recorder.start(recorder.enqueue(channel, call)); }
};

/// Forks a rank; what it writes to stderr goes to the file `rank-N.err`.
class RankChild {
  public:
    RankChild(const TempDir& folder, int rank, const std::function<void()>& work)
        : output_(folder / fmt::format("rank-{}.err", rank)), pid_(::fork()) {
        if (pid_ != 0) return;
        die_with_parent(::getppid());
        ::dup2(::open(output_.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
        work();
        ::_exit(0);
    }
    ~RankChild() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    RankChild& operator=(RankChild&&) = delete;

    void send(int signal) const { ::kill(pid_, signal); }
    pid_t pid() const { return pid_; }
    /// The exit code, 128 + signal, or -1 if it still runs after `limit_s`.
    int wait(double limit_s) const {
        siginfo_t facts{};
        const auto has_ended = [&] {
            ::waitid(P_PID, static_cast<id_t>(pid_), &facts, WEXITED | WNOHANG | WNOWAIT);
            return facts.si_pid != 0;
        };
        if (!eventually(has_ended, limit_s)) return -1;
        return facts.si_code == CLD_EXITED ? facts.si_status : 128 + facts.si_status;
    }
    std::string output() const { return test::content_of(output_); }

  private:
    fs::path output_;
    pid_t pid_;
};

[[noreturn]] inline void sleep_for_ever() {
    while (true) ::pause();
}

inline bool has_ring(const TempDir& folder, int rank) {
    return eventually([&] {
        const RankTrace trace = read_rank_trace(ring_path(folder.path(), rank));
        return trace.damage.empty() && !trace.entries.empty();
    });
}

}  // namespace lockstep::test
