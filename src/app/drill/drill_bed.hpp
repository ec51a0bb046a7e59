// SPDX-License-Identifier: Apache-2.0
// Small trainings for the rehearsal of faults, in one scratch folder.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/rank_trace.hpp"

#include "drill/drill_report.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

namespace lockstep {

/// Settings that are the same for all faults of a drill.
struct DrillSettings {
    fs::path scratch;        ///< a folder of the drill's own
    int ranks = 2;           ///< ranks of trainings on this machine
    std::int64_t steps = 0;  ///< steps of each training; 0: as many as take some seconds
    std::string hosts;       ///< "a:2,b:2", for the loss of a node; "": none given
    std::string parameters;  ///< hash of the undisturbed training; "" before it
};

/// A training that has saved once, and its ranks' records.
struct LiveRun {
    std::vector<RankTrace> traces;  ///< by rank
    std::vector<pid_t> family;      ///< processes on this host that name the run
    pid_t launcher = -1;            ///< the process that the drill started
};

/// A training with a fault.
struct Attack {
    std::string name;  ///< name of its run directory
    fs::path data;
    std::vector<std::string> more{};  ///< words for this training
    std::string hosts{};              ///< hosts of its ranks; "": --np of them here
    /// Called once when it has saved; returns what was done. Empty: the fault was there before.
    std::function<std::string(const LiveRun&)> strike{};
    double limit_s = 300;  ///< limit for its end
};

/// The end of such a training.
struct Struck {
    int exit_code = -1;    ///< 128 + signal when killed; -1: it did not end
    std::string output{};  ///< output of launcher and ranks
    std::string done{};    ///< result of strike(); "" if the training ended before it
};

/// Makes the data, trains, and checks what is left. Sends signals only to processes that it
/// started. One thread.
class DrillBed {
  public:
    /// `look` is called ten times a second with the present activity, and may throw.
    DrillBed(DrillSettings settings, std::function<void(const std::string&)> look);

    /// Makes the data, chooses the steps if they are not given, and trains without faults. Errors:
    /// E705 if that fails.
    void prepare();

    const DrillSettings& settings() const { return settings_; }
    fs::path data() const { return settings_.scratch / "data"; }
    fs::path run(const std::string& name) const { return settings_.scratch / name; }

    /// Shows the activity `what`. Errors: E242 when a signal asks to end.
    void look(const std::string& what) const { look_(what); }

    /// Trains until `attack` has ended it.
    Struck train(const Attack& attack);

    /// Runs the same command again without a fault, and expects the same parameters.
    Expectation expect_same_parameters(const Attack& attack);

    /// Waits a moment for processes that the kernel has yet to kill.
    void wait_until_gone(const Attack& attack) const;

    /// Expects that no process of the run lives, and that the launch left no files in memory.
    Expectation expect_nothing_left(const Attack& attack) const;

    /// Runs `lockstep WORDS` and handles signals in that time; -1 if it takes too long.
    Struck run_lockstep(const std::vector<std::string>& words,
                        const std::function<void()>& meanwhile,
                        double limit_s) const;

  private:
    std::vector<std::string> words_for(const Attack& attack) const;
    std::optional<LiveRun> live_run(const fs::path& run) const;

    DrillSettings settings_;
    fs::path launch_folder_;  ///< folder of the last training with a fault
    std::function<void(const std::string&)> look_;
};

/// Sends `signal` to `pid` if it is of the run's family. Returns true if it did.
bool send_to(const LiveRun& live, std::int64_t pid, int signal);

}  // namespace lockstep
