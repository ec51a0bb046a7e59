// SPDX-License-Identifier: Apache-2.0
// Small trainings that faults are rehearsed on, in one scratch folder.
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

/// What is the same for all faults of a drill.
struct DrillSettings {
    fs::path scratch;        ///< a folder of the drill's own
    int ranks = 2;           ///< of trainings on this machine
    std::int64_t steps = 0;  ///< of each training; 0: some seconds' worth
    std::string hosts;       ///< "a:2,b:2", for the loss of a node; "": none were given
    std::string parameters;  ///< hash of the undisturbed training; "" before it
};

/// A training that has saved once, and what its ranks say of themselves.
struct LiveRun {
    std::vector<RankTrace> traces;  ///< by rank
    std::vector<pid_t> family;      ///< processes on this host that name the run
    pid_t launcher = -1;            ///< the one that the drill started
};

/// A training that meets a fault.
struct Attack {
    std::string name;  ///< of its run directory
    fs::path data;
    std::vector<std::string> more{};  ///< words for this training
    std::string hosts{};              ///< where its ranks are; "": --np of them here
    /// Called once when it has saved; says what was done. Empty: the fault was there before.
    std::function<std::string(const LiveRun&)> strike{};
    double limit_s = 300;  ///< it must have ended by then
};

/// How it ended.
struct Struck {
    int exit_code = -1;    ///< 128 + signal when killed; -1: it did not end
    std::string output{};  ///< of launcher and ranks
    std::string done{};    ///< what strike() says; "" where the training ended before it
};

/// Makes the data, trains, looks at what is left. Acts on processes that it started alone. One
/// thread.
class DrillBed {
  public:
    /// `look` is told what goes on ten times a second, and may throw.
    DrillBed(DrillSettings settings, std::function<void(const std::string&)> look);

    /// Makes the data, chooses the steps where they are not given, and trains undisturbed. Errors:
    /// E705 if that fails.
    void prepare();

    const DrillSettings& settings() const { return settings_; }
    fs::path data() const { return settings_.scratch / "data"; }
    fs::path run(const std::string& name) const { return settings_.scratch / name; }

    /// Shows that `what` goes on. Errors: E242 when a signal asked to end.
    void look(const std::string& what) const { look_(what); }

    /// Trains until `attack` has ended it.
    Struck train(const Attack& attack);

    /// The same command again, undisturbed: the expectation that it comes to the same parameters.
    Expectation expect_same_parameters(const Attack& attack);

    /// Gives what the kernel has to kill yet a moment.
    void wait_until_gone(const Attack& attack) const;

    /// Nothing of the run lives, and the launch that was struck left no files in memory.
    Expectation expect_nothing_left(const Attack& attack) const;

    /// Runs `lockstep WORDS`, looking after signals meanwhile; -1 where it takes too long.
    Struck run_lockstep(const std::vector<std::string>& words,
                        const std::function<void()>& meanwhile,
                        double limit_s) const;

  private:
    std::vector<std::string> words_for(const Attack& attack) const;
    std::optional<LiveRun> live_run(const fs::path& run) const;

    DrillSettings settings_;
    fs::path launch_folder_;  ///< of the last training that was struck
    std::function<void(const std::string&)> look_;
};

/// Sends `signal` to `pid` if it is of the run's family. Returns whether it did.
bool send_to(const LiveRun& live, std::int64_t pid, int signal);

/// Living processes on this host that have `word` on their command line, but this one.
std::vector<pid_t> processes_naming(const std::string& word);

}  // namespace lockstep
