// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/run_status.hpp"

#include "loop/run_hold.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double patient_warn_s = 60;  // for readers of the record of a run without time-out
constexpr double least_set_up_s = 5;   // a busy machine loads LibTorch meanwhile

double warn_s(const TrainSettings& settings) {
    return settings.comm_timeout_s > 0 ? settings.comm_timeout_s / 10 : patient_warn_s;
}

void give_up(const RunPaths& paths, std::int64_t incarnation, const WatchReport& report) {
    const Error error = error_of(report.verdict);
    if (report.speaks && incarnation > 0)
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

EarlyFlight::EarlyFlight(const Communicator& ranks, const TrainSettings& settings) : ranks_(ranks) {
    const fs::path folder = from_root(ranks, [&] { return make_folder(settings.run).string(); });
    if (folder.empty() || !begin_record(folder, settings)) return;
    NodeWatchSettings patience;
    // --comm-timeout 0: somebody may be looking at a rank with a debugger.
    if (settings.comm_timeout_s <= 0) patience.silent_s = 0;
    // Known before a collective's time is up, which tells of no node; a round of beats later.
    patience.unanswered_s = std::min(patience.unanswered_s, 0.6 * settings.comm_timeout_s);
    nodes_ = watch_nodes(
        ranks, [&] { return folder; }, patience);
    if (!nodes_) return;
    nodes_->stand_by(*recorder_);
    watch(settings);
}

void EarlyFlight::watch(const TrainSettings& settings) {
    watchdog_.reset();
    auto limits = WatchdogSettings::within(settings.comm_timeout_s);
    limits.init_s = std::max(limits.init_s, least_set_up_s);
    watchdog_.emplace(
        *recorder_,
        limits,
        [this, run = settings.run](const WatchReport& report) {
            note({run}, incarnation_, report);
        },
        nodes_.get());
}

EarlyFlight::~EarlyFlight() {
    end_record();
    nodes_.reset();
    std::error_code ignored;
    if (!folder_.empty()) fs::remove_all(folder_, ignored);
    if (!run_.empty()) fs::remove(run_, ignored);  // not if the run has begun: it is not empty
}

// After the barrier nobody writes to the folder any more, which may go.
void EarlyFlight::hand_over() {
    watchdog_.reset();
    recorder_.reset();
    ranks_.barrier();
}

/// Collective. Whether all ranks have one. Each watches from its own record on: another may stop
/// before it agrees.
bool EarlyFlight::begin_record(const fs::path& folder, const TrainSettings& settings) {
    std::array<std::int64_t, 1> failed{1};
    try {
        // Else it would make one of its own, where nobody else looks.
        if (fs::is_directory(folder))
            recorder_.emplace(folder,
                              ranks_.rank(),
                              ranks_.size(),
                              FlightSettings{.entries = 64, .warn_s = warn_s(settings)});
        if (recorder_) watch(settings);
        failed[0] = watchdog_ ? 0 : 1;
    } catch (const std::exception&) {
        // Who opens the run refuses a folder that cannot be written to.
    }
    if (recorder_) {
        mirror_signals_to(recorder_->signal_word());
        ranks_.record_in(&*recorder_);
    }
    ranks_.all_reduce_max(failed);
    if (failed[0] != 0) end_record();
    return failed[0] == 0;
}

void EarlyFlight::end_record() {
    if (!recorder_) return;
    ranks_.record_in(nullptr);
    mirror_signals_to(nullptr);
    watchdog_.reset();
    recorder_.reset();
}

// A folder that cannot be made, or is not a run's, is refused by who opens the run.
fs::path EarlyFlight::make_folder(const fs::path& run) {
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
               std::shared_ptr<NodeWatch> nodes)
    : clock_(clock),
      ranks_(ranks),
      recorder_(paths.flight(incarnation),
                ranks.rank(),
                ranks.size(),
                {.entries = settings.flight_entries, .warn_s = warn_s(settings)}),
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
