// SPDX-License-Identifier: Apache-2.0
#include "flight.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/observe/events.hpp"

#include <fmt/format.h>

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

Flight::Flight(const RunPaths& paths,
               std::int64_t incarnation,
               const Communicator& ranks,
               const TrainSettings& settings,
               PhaseClock& clock)
    : clock_(clock),
      recorder_(
          paths.flight(incarnation),
          ranks.rank(),
          ranks.size(),
          {.entries = settings.flight_entries,
           .warn_s = settings.comm_timeout_s > 0 ? settings.comm_timeout_s / 10 : patient_warn_s}),
      watchdog_(
          recorder_,
          WatchdogSettings::within(settings.comm_timeout_s),
          [paths, incarnation](const WatchReport& report) { note(paths, incarnation, report); }) {
    clock_.mirror_to(recorder_.phase_word());
    mirror_signals_to(recorder_.signal_word());
}

Flight::~Flight() {
    mirror_signals_to(nullptr);
    clock_.mirror_to(nullptr);
}

}  // namespace lockstep
