// SPDX-License-Identifier: Apache-2.0
#include "loop/flight.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/observe/events.hpp"
#include "lockstep/observe/run_status.hpp"

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double patient_warn_s = 60;  // for readers of the record of a run without time-out

void give_up(const RunPaths& paths, std::int64_t incarnation, const WatchReport& report) {
    const Error error = error_of(report.verdict);
    if (report.speaks)
        write_failed_state(
            paths.root, incarnation, error.code() + ": " + error.what(), ExitCode::peer_lost);
    log_event(event_of(error));
    here(Level::info, "gives up: {}; {}", error.what(), error.why());
}

void note(const RunPaths& paths, std::int64_t incarnation, const WatchReport& report) {
    if (report.stage == Stage::abort) return give_up(paths, incarnation, report);
    const Verdict& verdict = report.verdict;
    here(report.speaks && report.stage == Stage::warn ? Level::warn : Level::info,
         "a collective takes long: {}; {}",
         verdict.what,
         verdict.why);
}

}  // namespace

// --comm-timeout 0: somebody may be looking at a rank with a debugger.
EarlyNodeWatch::EarlyNodeWatch(const Communicator& ranks, const TrainSettings& settings)
    : nodes_(watch_nodes(
          ranks,
          [&] { return make_folder(settings.run); },
          {.silent_s = settings.comm_timeout_s > 0 ? NodeWatchSettings{}.silent_s : 0})) {}

EarlyNodeWatch::~EarlyNodeWatch() {
    nodes_.reset();
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
    if (!run_.empty()) fs::remove(run_, ignored);  // not if the run has begun: it is not empty
}

// A folder that cannot be made, or is not a run's, is refused by who opens the run.
fs::path EarlyNodeWatch::make_folder(const fs::path& run) {
    std::error_code failed;
    const bool is_new = !fs::exists(run, failed);
    if (!is_new && !is_run(run) && !fs::is_empty(run, failed)) return {};
    folder_ = RunPaths{run}.starting(fmt::format("{}-{:.0f}", ::getpid(), unix_time_s() * 1000));
    try {
        make_directories(folder_);
    } catch (const Error&) {
        folder_.clear();
        return {};
    }
    if (is_new) run_ = run;
    return folder_;
}

Flight::Flight(const RunPaths& paths,
               std::int64_t incarnation,
               const Communicator& ranks,
               const TrainSettings& settings,
               PhaseClock& clock,
               std::unique_ptr<NodeWatch> nodes)
    : clock_(clock),
      ranks_(ranks),
      recorder_(
          paths.flight(incarnation),
          ranks.rank(),
          ranks.size(),
          {.entries = settings.flight_entries,
           .warn_s = settings.comm_timeout_s > 0 ? settings.comm_timeout_s / 10 : patient_warn_s}),
      nodes_(std::move(nodes)),
      watchdog_(
          recorder_,
          WatchdogSettings::within(settings.comm_timeout_s),
          [paths, incarnation](const WatchReport& report) { note(paths, incarnation, report); },
          nodes_.get()) {
    if (nodes_) nodes_->stand_by(recorder_);
    clock_.mirror_to(recorder_.phase_word());
    mirror_signals_to(recorder_.signal_word());
    ranks_.record_in(&recorder_);
}

Flight::~Flight() {
    ranks_.record_in(nullptr);
    mirror_signals_to(nullptr);
    clock_.mirror_to(nullptr);
}

}  // namespace lockstep
