// SPDX-License-Identifier: Apache-2.0
// A rank that waits for another in MPI can do nothing: it cannot time out, nor report for whom it
// waits. So two threads watch beside it. There are two because naming the culprit requires reading
// files and writing logs, which hang as well with a hung file system or a full pipe. Then the other
// thread still ends the process.
//
//     counter    every period: beat; how long has the oldest collective been pending, and how long
//        |       has the model, the optimizer or the set-up been at work without an end?
//        |         warn ----> dump ----> abort ---------------- farewell_s ----> _exit(76)
//        | wanted_   |          |          |                         ^
//        v           v          v          v                         | has_spoken_ or is_postponed_
//     scribe      a report  + list of   read rings, diagnose, speak -+
//                             threads
//
// The scribe sees lost ranks of this node in /proc; NodeWatch knows those of other nodes.
//
// One rank reports for all: the one that the verdict names claims verdict.json (the same function
// over the same files, so that ranks agree without a message). Others wait half a second and then
// claim it themselves.
//
// What must never happen:
// - The counter calls anything that may block: no file, no log, no MPI, and the mutex only as long
//   as the scribe holds it, which is never while it reads or writes.
// - A wait with a good reason ends the job. A culprit that saves or evaluates is an excuse, a few
//   times; time in which this process was itself stopped does not count (StuckClock).
// - A rank that stops while all save or evaluate keeps a job: a wait there has a longer limit
//   (longer_by), not none.
// - A model that loops for ever keeps a job: ranks that all compute wait for nobody. Evaluations
//   and waits for data may be long; a pass of a leaf or an update is not. Nor is what lies between
//   two collectives of the set-up, as a model's constructor.
// - A disk that never answers keeps a job, or one that was told to stop: ranks that all save wait
//   for nobody. A save marks its phase anew with each part that is on its way to the disk.
// - A signal that no step can answer ends nothing: see is_overdue().
// - exit() instead of _exit(): destructors and MPI_Finalize would wait for the rank that is lost.
// - A hang becomes a success: the end mark is written before the process ends, with 76.
//
// Tested: run/flight/watchdog_test.cpp (real ranks that stop, die, stall or hang in their own
// listener), soak/hang.

#include "lockstep/run/watchdog.hpp"

#include "lockstep/core/control_group.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"

#include "flight/signs_of_life.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr double farewell_s = 1.5;  // from the decision to _exit
constexpr double give_way_s = 0.5;  // for the rank that is to speak
constexpr double last_words_s = 5;  // for a rank that failed, or was told to end, to end all
constexpr double longest_period_s = 0.25;
constexpr int most_postponements = 3;
// A wait among ranks that save or evaluate, and all waits of the set-up.
constexpr double longer_by = 1 + most_postponements;
constexpr double patience_when_asked_s = 60;  // with a phase, once somebody asked to save and stop
constexpr double patience_when_urged_s = 1;   // and once more

using Seconds = std::chrono::duration<double>;

void write_to_stderr(const std::string& text) {
    [[maybe_unused]] const auto wrote = ::write(error_descriptor(), text.data(), text.size());
}

}  // namespace

WatchdogSettings WatchdogSettings::within(double abort_s) {
    return {.warn_s = abort_s / 10,
            .dump_s = abort_s / 5,
            .abort_s = abort_s,
            .init_s = longer_by * abort_s};
}

double StuckClock::update(const std::optional<FlightEntry>& pending, double now_s) {
    constexpr double most_periods = 4;  // longer between two calls: this process was stopped itself
    const double before_s = std::exchange(last_s_, now_s);
    if (!pending) return waited_s_ = 0;
    const bool is_same = pending->channel == channel_ && pending->seq == seq_;
    if (!is_same) waited_s_ = 0;
    channel_ = pending->channel;
    seq_ = pending->seq;
    const double passed_s = now_s - std::max(before_s, pending->enqueued_s);
    waited_s_ += std::clamp(passed_s, 0.0, most_periods * period_s_);
    return waited_s_;
}

class Watchdog::Impl {
  public:
    Impl(FlightRecorder& recorder,
         WatchdogSettings settings,
         Listener listener,
         const NodeWatch* nodes)
        : recorder_(recorder),
          settings_(settings),
          listener_(std::move(listener)),
          nodes_(nodes),
          period_s_(settings.is_patient()
                        ? longest_period_s
                        : std::clamp(settings.abort_s / 40, 0.02, longest_period_s)),
          stopped_(period_s_) {
        try {
            scribe_ = std::thread([this] { write_reports(); });
            counter_ = std::thread([this] { count(); });
        } catch (...) {  // the system has no more of them
            end();
            throw;
        }
    }

    ~Impl() { end(); }
    Impl& operator=(Impl&&) = delete;

  private:
    void end() {
        {
            const std::lock_guard lock(mutex_);
            is_over_ = true;
        }
        changed_.notify_all();
        for (std::thread* thread : {&counter_, &scribe_})
            if (thread->joinable()) thread->join();
    }

    // The counting thread: touches no file, so that nothing can hold it up.

    void count() {
        StuckClock waiting(period_s_), computing(period_s_), saving(period_s_),
            setting_up(period_s_), asked(period_s_);
        std::unique_lock lock(mutex_);
        while (true) {
            changed_.wait_for(lock, Seconds(period_s_), [&] { return is_over_ || is_lost_; });
            if (is_over_) return;
            recorder_.beat();
            if (std::exchange(is_postponed_, false))
                for (StuckClock* clock : {&waiting, &computing, &saving, &setting_up, &asked})
                    clock->reset();
            const PhaseMark mark = recorder_.phase();  // which must end soon if it computes
            const auto phase = is_computing(mark.phase) ? as_entry(mark) : std::nullopt;
            const double longest_s = std::max({waited_s(waiting),
                                               computing.update(phase, now_s()),
                                               saved_s(saving),
                                               setting_up.update(stuck_set_up(), now_s())});
            const bool ends_now = is_overdue(asked, phase) || is_lost_;
            const Stage stage = ends_now ? Stage::abort : stage_after(longest_s);
            const bool rises = stage > wanted_;
            wanted_ = stage;
            if (rises) changed_.notify_all();
            if (rises && stage == Stage::abort) say_farewell(lock);
        }
    }

    /// Returns the wait scaled as if the limit were always abort_s.
    double waited_s(StuckClock& clock) const {
        const double waited_s = clock.update(recorder_.oldest_pending(), now_s());
        return takes_its_time() ? waited_s / longer_by : waited_s;
    }

    /// Saves or evaluates. All of the set-up has a limit of its own.
    bool takes_its_time() const {
        return recorder_.is_running() && may_be_long(recorder_.phase().phase);
    }

    /// Returns the time without a sign of a save, scaled likewise until somebody asked to stop.
    double saved_s(StuckClock& clock) const {
        const PhaseMark mark = recorder_.phase();
        const bool saves = recorder_.is_running() && mark.phase == Phase::checkpoint;
        const double saved_s = clock.update(saves ? as_entry(mark) : std::nullopt, now_s());
        return stop_requests() > 0 ? saved_s : saved_s / longer_by;
    }

    /// The phase as if it were a collective: for a StuckClock.
    static std::optional<FlightEntry> as_entry(const PhaseMark& mark) {
        return FlightEntry{.channel = static_cast<std::uint32_t>(mark.phase),
                           .seq = packed(mark),
                           .enqueued_s = mark.since_s};
    }

    /// Returns the set-up since its last collective in the same form. Files may be read for long.
    std::optional<FlightEntry> stuck_set_up() const {
        const PhaseMark mark = recorder_.phase();
        if (recorder_.is_running() || mark.phase != Phase::other) return {};
        if (recorder_.oldest_pending()) return {};
        return FlightEntry{.seq = recorder_.next().index + 1, .enqueued_s = mark.since_s};
    }

    /// Returns true if a request to save and stop is pending and the phase has not ended for too
    /// long since.
    bool is_overdue(StuckClock& clock, const std::optional<FlightEntry>& phase) const {
        const int requests = stop_requests();
        const double since_s = clock.update(requests > 0 ? phase : std::nullopt, now_s());
        if (requests > 1) return since_s > patience_when_urged_s;
        return !settings_.is_patient() && since_s > patience_when_asked_s;
    }

    Stage stage_after(double waited_s) const {
        if (settings_.is_patient()) return Stage::none;
        if (!recorder_.is_running()) waited_s *= settings_.abort_s / settings_.init_s;
        if (waited_s >= settings_.abort_s) return Stage::abort;
        if (waited_s >= settings_.dump_s) return Stage::dump;
        return waited_s >= settings_.warn_s ? Stage::warn : Stage::none;
    }

    /// Returns only if the scribe found a reason to wait on.
    void say_farewell(std::unique_lock<std::mutex>& lock) {
        const auto is_decided = [&] { return has_spoken_ || is_postponed_ || is_over_; };
        changed_.wait_for(lock, Seconds(farewell_s), is_decided);
        if (is_postponed_ || is_over_) return;
        if (!has_spoken_) say_without_verdict();
        recorder_.mark_failed(static_cast<int>(ExitCode::peer_lost));
        end_process(static_cast<int>(ExitCode::peer_lost));
    }

    /// Files or locks hold the verdict up. Says so if stderr can take it at once.
    void say_without_verdict() const {
        pollfd terminal{error_descriptor(), POLLOUT, 0};
        if (::poll(&terminal, 1, 0) == 1)
            write_to_stderr(fmt::format(
                "lockstep: error E660: rank {} gives up; no verdict could be read in time\n",
                recorder_.rank()));
    }

    // The writing thread: may hang with a file system, a pipe or a lock.

    void write_reports() {
        Peers peers(recorder_.folder(), recorder_.rank(), recorder_.ranks());
        Stage done = Stage::none;
        std::unique_lock lock(mutex_);
        while (!is_over_) {
            changed_.wait_for(
                lock, Seconds(period_s_), [&] { return is_over_ || wanted_ != done; });
            if (is_over_) return;
            const Stage before = std::exchange(done, wanted_);
            lock.unlock();
            if (done > before) report(done);
            if (done != Stage::abort) look_after(peers);
            lock.lock();
        }
    }

    void report(Stage stage) {
        recorder_.flush();
        if (stage == Stage::abort && said_) return give_up(*said_);
        const Verdict verdict = verdict_now(0);
        if (stage == Stage::dump || verdict.trouble == Trouble::no_progress) dump_threads();
        const bool excused =
            verdict.pauses && !takes_its_time() && ++postponements_ <= most_postponements;
        if (stage == Stage::abort && !excused && verdict.trouble != Trouble::none)
            return give_up(verdict);
        if (stage == Stage::abort) return postpone();
        if (verdict.trouble != Trouble::none)
            tell(stage, verdict.speaker == recorder_.rank(), verdict);
    }

    Verdict verdict_now(double patience_s) const {
        try {
            auto traces = read_rank_traces(recorder_.folder());
            if (nodes_ != nullptr) add_lost_ranks(nodes_->lost(), traces);
            // NodeWatch knows the silent ones by its own clock; theirs may be wrong.
            const double silent_s =
                nodes_ == nullptr ? silence_s : std::numeric_limits<double>::infinity();
            Verdict verdict = diagnose(traces, unix_time_s(), patience_s, silent_s);
            blame_memory(verdict, traces, oom_kills_before_);
            return verdict;
        } catch (const std::exception& error) {
            return {.trouble = Trouble::slow_rank,
                    .what = fmt::format("rank {} waits for others", recorder_.rank()),
                    .why = fmt::format("who they are cannot be read: {}", error.what())};
        }
    }

    void tell(Stage stage, bool speaks, const Verdict& verdict) const {
        try {
            listener_({stage, speaks, verdict});
        } catch (const std::exception&) {
            // A failure to log must not keep a rank from ending.
        }
    }

    void dump_threads() const {
        const fs::path path =
            recorder_.folder() / fmt::format("rank-{:05}.threads", recorder_.rank());
        try {
            write_file_atomically(path, thread_list());
        } catch (const Error&) {
            // A full disk must not end a job that may yet go on.
        }
    }

    void postpone() {
        const std::lock_guard lock(mutex_);
        is_postponed_ = true;
        is_lost_ = false;
        wanted_ = Stage::none;
        changed_.notify_all();
    }

    /// The chosen rank speaks; if it does not, any other that gets here does.
    void give_up(const Verdict& verdict) {
        const Verdict chooses = said_ ? verdict_now(0) : verdict;
        const bool is_chosen = chooses.speaker == recorder_.rank();
        for (double waited_s = 0; !is_chosen && waited_s < give_way_s; waited_s += 0.02) {
            if (fs::exists(status_of(verdict_path(recorder_.folder())))) break;
            std::this_thread::sleep_for(Seconds(0.02));
        }
        // A launcher hears one side alone if the network is lost, so each side speaks at once. A
        // rank that found others' verdict has waited already.
        const bool is_due = said_ || verdict.trouble == Trouble::network_slow;
        const double patience_s = is_due ? 0 : heard_within_s;
        // Any rank of the chosen one's node may repeat it: that one may have been ended.
        const bool may_repeat = nodes_ != nullptr && chooses.speaker_host == host_name();
        const bool is_first =
            nodes_ == nullptr ? claim_verdict(recorder_.folder(), verdict) : nodes_->claim(verdict);
        const bool speaks =
            is_first || (may_repeat && claim_unheard_verdict(recorder_.folder(), patience_s));
        if (speaks) write_to_stderr(error_of(verdict).text() + "\n");
        tell(Stage::abort, speaks, verdict);
        const std::lock_guard lock(mutex_);
        has_spoken_ = true;
        changed_.notify_all();
    }

    /// A peer that is gone without a word: at once, if it still looks so a moment later. One that
    /// has said why, or was told to end, or a launcher that is just ending all: it gets some time.
    void look_after(Peers& peers) {
        const bool is_node_lost = nodes_ != nullptr && !nodes_->lost().empty();
        if (nodes_ != nullptr && others_have_spoken()) return lose();
        const Life worst = peers.worst();
        if (!is_node_lost && worst != Life::gone) {
            lost_since_s_ = 0;
            return end_if_stopped(worst == Life::stopped);
        }
        if (lost_since_s_ == 0) {
            lost_since_s_ = now_s();
            return;
        }
        const Trouble trouble = verdict_now(settings_.init_s).trouble;
        const bool is_known = trouble == Trouble::dead || trouble == Trouble::network_slow;
        const double lost_s = now_s() - lost_since_s_;
        if (lost_s >= (is_known ? 0.1 : last_words_s)) lose();
    }

    void lose() {
        const std::lock_guard lock(mutex_);
        is_lost_ = true;
        changed_.notify_all();
    }

    /// Ranks of another node gave up, and no launcher may be left to tell this one. Only where this
    /// rank waits, so that a file server is not asked all the time.
    bool others_have_spoken() {
        const double least_wait_s =
            settings_.is_patient() ? 10 : std::min(10.0, settings_.abort_s / 4);
        const auto pending = recorder_.oldest_pending();
        const bool waits = pending && now_s() - pending->enqueued_s > least_wait_s;
        if (!waits || now_s() - looked_at_s_ < least_wait_s / 4) return false;
        looked_at_s_ = now_s();
        try {
            if (!said_ && (said_ = read_verdict(recorder_.folder()))) found_at_s_ = now_s();
        } catch (const Error&) {
            // It is being written.
        }
        return said_ && now_s() - found_at_s_ > heard_within_s;
    }

    /// A peer that is stopped has the time of a collective, whatever it was at: nothing that it
    /// could be waited for in may be recorded yet.
    void end_if_stopped(bool is_stopped) {
        const std::optional<FlightEntry> stop = FlightEntry{.seq = 1};
        const double stopped_s = stopped_.update(is_stopped ? stop : std::nullopt, now_s());
        if (settings_.is_patient() || stopped_s < settings_.abort_s) return;
        stopped_.reset();
        lose();
    }

    FlightRecorder& recorder_;
    const WatchdogSettings settings_;
    const Listener listener_;
    const NodeWatch* const nodes_;
    const double period_s_;
    const std::uint64_t oom_kills_before_ = control_group_memory_end().kills;
    int postponements_ = 0;        // the writing thread's
    double lost_since_s_ = 0;      // the writing thread's
    double looked_at_s_ = 0;       // likewise: at others' verdict
    double found_at_s_ = 0;        // likewise
    std::optional<Verdict> said_;  // likewise: by a rank that gave up before this one
    StuckClock stopped_;           // the writing thread's

    std::mutex mutex_;
    std::condition_variable changed_;
    Stage wanted_ = Stage::none;
    bool is_over_ = false, is_lost_ = false, is_postponed_ = false, has_spoken_ = false;

    std::thread scribe_, counter_;  // last: they use all of the above
};

Watchdog::Watchdog(FlightRecorder& recorder,
                   WatchdogSettings settings,
                   Listener listener,
                   const NodeWatch* nodes)
    : impl_(std::make_unique<Impl>(recorder, settings, std::move(listener), nodes)) {}

Watchdog::~Watchdog() = default;

}  // namespace lockstep
