// SPDX-License-Identifier: Apache-2.0
// A drill: small trainings in one scratch folder, the faults that end them, and the page of
// results.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/rank_trace.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
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

/// A condition that must hold after a fault.
struct Expectation {
    std::string what{};      ///< "exit code"
    std::string expected{};  ///< "76"
    std::string found{};     ///< equal to `expected` if it is met
    bool is_met = false;
};

/// Makes the expectation that two texts are equal.
Expectation expect_text(std::string what, std::string expected, std::string found);

enum class FaultEnd { passed, failed, skipped };

struct FaultReport {
    std::string name{};         ///< its option: "killed-rank"
    std::string done{};         ///< what was done to which training; "": nothing
    std::string why_skipped{};  ///< "": it was rehearsed
    std::vector<Expectation> expectations{};
    double seconds = 0;

    /// Returns passed if there are expectations and all are met.
    FaultEnd end() const;
};

struct DrillPage {
    std::string host{}, when{};  ///< name of this machine; UTC
    int ranks = 2;
    std::int64_t steps = 0;
    std::string parameters{};  ///< hash of the undisturbed training
    std::vector<FaultReport> faults{};

    std::size_t count(FaultEnd end) const;
};

/// Returns Markdown that is readable as text.
std::string page_text(const DrillPage& page);

void describe(Record& record, FaultReport& report);  ///< as the page has it

/// Checks the results. Errors: E740 if a fault did not end as it should, E741 if none was
/// rehearsed.
void check_drill(const DrillPage& page);

/// Makes the data, trains, and checks what is left. Sends signals only to processes that it
/// started. One thread.
struct DrillBed {
    DrillSettings settings;
    /// Called ten times a second with the present activity; throws E242 when a signal asks to end.
    std::function<void(const std::string&)> look;
    fs::path launch_folder{};  ///< folder of the last training with a fault

    fs::path data() const { return settings.scratch / "data"; }
    fs::path run(const std::string& name) const { return settings.scratch / name; }

    /// Makes the data, chooses the steps if they are not given, and trains without faults. Errors:
    /// E705 if that fails.
    void prepare();

    /// Trains until `attack` has ended it.
    Struck train(const Attack& attack);

    /// Runs the same command again without a fault, and expects the same parameters.
    Expectation expect_same_parameters(const Attack& attack);

    /// Waits a moment for processes that the kernel has yet to kill.
    void wait_until_gone(const Attack& attack) const;

    /// Expects that no process of the run lives, and that the launch left no files in memory.
    Expectation expect_nothing_left(const Attack& attack) const;
};

/// Sends `signal` to `pid` if it is of the run's family. Returns true if it did.
bool send_to(const LiveRun& live, std::int64_t pid, int signal);

/// One fault. `rehearse` fills in `done`, `why_skipped` and `expectations`. Errors: E242 when a
/// signal asks to end.
struct Fault {
    const char* name;  ///< its option without dashes
    const char* help;
    FaultReport (*rehearse)(DrillBed& bed);
    bool has_own_mounts = false;  ///< it is rehearsed in a child process that may mount
};

/// Returns the faults in the order of their rehearsal.
std::span<const Fault> all_faults();

/// Rehearses one, on the bed or in a child, while `bed.look` is called. Errors: as above.
FaultReport rehearse(const Fault& fault, DrillBed& bed);

}  // namespace lockstep
