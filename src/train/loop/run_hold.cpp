// SPDX-License-Identifier: Apache-2.0
// What a rank holds of the run on disk: its directory, its log and the record of its flight.
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/measure.hpp"
#include "lockstep/comm/recorded.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/watchdog.hpp"
#include "lockstep/train/train.hpp"

#include "loop/loop.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Ranks of a killed job need a moment to die; the other ranks wait for rank 0 meanwhile.
double lock_wait_s(const TrainSettings& settings) {
    constexpr double usual_s = 20;
    return settings.comm_timeout_s > 0 ? std::min(usual_s, 3 * settings.comm_timeout_s) : usual_s;
}

// Of a run that begins with another's weights.
std::string beginning_text(const TrainSettings& settings,
                           const InitialWeights& from,
                           const Json& deciding) {
    const CheckpointState then = read_checkpoint_state(from.checkpoint);
    const std::string changes = changes_text(deciding, then.contract.deciding);
    return fmt::format(
        "this is another run than '{}': it begins at step 0 with the weights of its step {}{}; {}",
        run_source(settings.from).run.string(),
        then.step,
        from.has_state ? " and the state of its optimizer" : ", and a new optimizer",
        changes.empty() ? "all settings that decide bits are the same" : "it has " + changes);
}

// On rank 0. Returns the incarnation.
std::int64_t open_directory(RunHold& run, Start& start, const Inputs& inputs, Contract& contract) {
    TrainSettings& settings = start.settings;
    RunDirectory& directory =
        run.directory.emplace(RunDirectory::open(settings.run, lock_wait_s(settings)));
    std::vector<BitContract> recorded = recorded_contracts(settings.run);
    contract.bits.deciding =
        deciding_facts(settings, inputs.digests, torch_version_text(), recorded_settings(recorded));
    start.notes.push_back(settle_length(settings, contract.length, contract.bits, recorded));
    const auto warning =
        check_recorded(settings.run,
                       recorded,
                       contract.bits,
                       origins_of(settings),
                       settings.accepts_other_bits ? OtherBits::accept : OtherBits::refuse);
    if (warning) settings.warnings.push_back(*warning);
    if (directory.is_new())
        directory.create(run_facts(settings, contract.bits, torch_version_text()));
    const DatasetIndex used = with_used_statistics(*inputs.data, settings.normalise);
    const InitialWeights& from = contract.weights;
    warn_of_other_statistics(start, used, from);
    if (!from.checkpoint.empty())
        start.notes.push_back(beginning_text(settings, from, contract.bits.deciding));
    keep_for_prediction(settings.run, settings, used, inputs.digests.value("model-digest", ""));
    remove_unfinished_checkpoints(directory.paths().checkpoints());
    return directory.begin_incarnation();
}

// Each node must see what rank 0 wrote, or the first checkpoint would be the run's end. A client of
// NFS keeps what it has seen of a folder until somebody opens that.
void wait_for_folder(const RunHold& run) {
    constexpr double longest_s = 10;
    constexpr std::chrono::milliseconds pause(50);
    const fs::path root = fs::absolute(run.paths.root).lexically_normal();
    for (const double begin_s = now_s(); read_incarnation(root) < run.incarnation;) {
        check(
            now_s() - begin_s < longest_s,
            "E605",
            fmt::format("this node has another folder '{}' than rank 0's, or none", root.string()),
            fmt::format("start {} of the run, which rank 0 began there, is not seen",
                        run.incarnation),
            "give --run on a file system that all nodes share");
        std::this_thread::sleep_for(pause);
        std::error_code unseen;
        for (const fs::path& folder : {root.parent_path(), root})
            static_cast<void>(fs::directory_iterator(folder, unseen));
    }
}

void open_run_log(const Start& start, const RunHold& run) {
    const Communicator& world = start.ranks;
    agree(world, [&] {
        wait_for_folder(run);
        open_log({.rank = world.rank(),
                  .world_size = world.size(),
                  .start = run.incarnation,
                  .host = start.node.host,
                  .directory = run.paths.logs(run.incarnation),
                  .shows_live = start.settings.shows_live,
                  .keeps_stderr = start.settings.keeps_stderr});
    });
    const ClockOffset offset = measure_clock_offset(world, world.split_by_node(), unix_time_s);
    log_event(ClockEvent{offset.ahead_s, offset.error_s});
}

// Collective. What each rank has, and what that leaves to this one.
std::vector<RankRow> share_node(const Start& start, RankShare& share) {
    const Communicator& world = start.ranks;
    const RankRow mine = make_rank_row(start.node, world.rank());
    std::vector<RankRow> rows;
    for (const std::string& text : world.all_gather(serialize(mine)))
        rows.push_back(deserialize<RankRow>(text, "rank row"));
    const auto here = std::ranges::count(rows, mine.host_id, &RankRow::host_id);
    share = {.cpus = cpu_share(rows, world.rank()),
             .cores = core_share(rows, world.rank(), start.node.control_group),
             .memory_bytes = mine.memory_bytes / static_cast<std::uint64_t>(here),
             .ranks_here = static_cast<int>(here)};
    log_event(PlaceEvent{.cores = static_cast<int>(mine.cpus.size()),
                         .sharers = ranks_sharing_cpus(rows, mine.rank),
                         .quota = start.node.control_group.cpu_quota});
    return rows;
}

void describe_run(const LoopParts& parts) {
    const TrainSettings& settings = parts.start.settings;
    const DatasetIndex& data = *parts.inputs.data;
    once(
        Level::info,
        "run {} | incarnation {} | {} of {} samples | V = {}, {} thread(s) a rank, {} | {} rank(s)",
        settings.run.string(),
        parts.run.incarnation,
        data.name(),
        grouped(parts.inputs.samples),
        settings.virtual_ranks,
        settings.threads,
        instruction_set_name(*settings.instruction_set),
        parts.start.ranks.size());
    for (const std::string& input : input_texts(data, settings))
        once(Level::info, "input {}", input);
    if (const std::string warning = normalised_inputs_warning(data, settings); !warning.empty())
        once(Level::warn, "{}", warning);
    const TaskKind kind = choose_task(settings.task, data);
    if (kind != TaskKind::classification) once(Level::info, "task {}", task_name(kind));
    if (const std::string classes = parts.engine.task->classes_text(); !classes.empty())
        once(Level::info, "{}", classes);
}

constexpr double patient_warn_s = 60;  // for readers of the record of a run without time-out
constexpr double least_set_up_s = 5;   // a busy machine loads LibTorch meanwhile

double warn_s(const TrainSettings& settings) {
    return settings.comm_timeout_s > 0 ? settings.comm_timeout_s / 10 : patient_warn_s;
}

void note(const RunPaths& paths, std::int64_t incarnation, const WatchReport& report) {
    if (report.stage != Stage::abort)
        return here(report.speaks && report.stage == Stage::warn ? Level::warn : Level::info,
                    "a collective takes long: {}; {}",
                    report.verdict.what,
                    report.verdict.why);
    const Error error = error_of(report.verdict);
    if (report.speaks && incarnation > 0)
        write_failed_state(
            paths.root, incarnation, error.code() + ": " + error.what(), ExitCode::peer_lost);
    log_event(event_of(error));
    here(Level::info, "gives up: {}; {}", error.what(), error.why());
}

}  // namespace

/// Records and watches before the run's folder is opened, in a folder in it that is gone when this
/// is: a rank that stops, or a model's constructor that loops, ends a start as it ends a training.
/// Does nothing where that folder cannot be made, or cannot be seen by all ranks.
class EarlyFlight {
  public:
    /// Collective.
    EarlyFlight(const Communicator& ranks, const TrainSettings& settings) : ranks_(ranks) {
        const fs::path folder =
            from_root(ranks, [&] { return make_folder(settings.run).string(); });
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

    ~EarlyFlight() {
        end_record();
        nodes_.reset();
        std::error_code ignored;
        if (!folder_.empty()) fs::remove_all(folder_, ignored);
        if (!run_.empty()) fs::remove(run_, ignored);  // not if the run has begun: it is not empty
    }

    EarlyFlight& operator=(EarlyFlight&&) = delete;

    /// Call when the run is open: from now on a verdict marks this start as failed.
    void name_start(std::int64_t incarnation) { incarnation_ = incarnation; }

    std::shared_ptr<NodeWatch> nodes() const { return nodes_; }  ///< null on one node

    /// Collective. Call when all ranks have a Flight that watches them: after the barrier nobody
    /// writes to the folder any more, which may go.
    void hand_over() {
        watchdog_.reset();
        recorder_.reset();
        ranks_.barrier();
    }

  private:
    // A folder that cannot be made, or is not a run's, is refused by who opens the run.
    fs::path make_folder(const fs::path& run) {
        std::error_code failed;
        const bool is_new = !fs::exists(run, failed);
        if (!is_new && !is_run(run) && !fs::is_empty(run, failed)) return {};
        folder_ =
            RunPaths{run}.starting(fmt::format("{}-{:.0f}", ::getpid(), unix_time_s() * 1000));
        try {
            make_directories(folder_);
        } catch (const Error&) {
            folder_.clear();
            return {};
        }
        if (is_new) run_ = run;
        return folder_;
    }

    // Collective. Whether all ranks have one. Each watches from its own record on: another may stop
    // before it agrees.
    bool begin_record(const fs::path& folder, const TrainSettings& settings) {
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

    void end_record() {
        if (!recorder_) return;
        ranks_.record_in(nullptr);
        mirror_signals_to(nullptr);
        watchdog_.reset();
        recorder_.reset();
    }

    void watch(const TrainSettings& settings) {
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

    const Communicator ranks_;
    fs::path run_, folder_;  // folder that rank 0 made; "": none
    std::atomic<std::int64_t> incarnation_ = 0;
    std::optional<FlightRecorder> recorder_;
    std::shared_ptr<NodeWatch> nodes_;
    std::optional<Watchdog> watchdog_;
};

/// Records and watches from construction to destruction: phases of the run's clock, signals,
/// collectives that go through recorded(), and those of the ranks that save or evaluate. At its
/// time-out, the rank that reports for all also marks the run as failed.
class Flight {
  public:
    Flight(RunHold& run, const Start& start)
        : clock_(run.clock),
          ranks_(start.ranks),
          recorder_(run.paths.flight(run.incarnation),
                    ranks_.rank(),
                    ranks_.size(),
                    {.entries = start.settings.flight_entries, .warn_s = warn_s(start.settings)}),
          nodes_(run.early->nodes()),
          watchdog_(
              recorder_,
              WatchdogSettings::within(start.settings.comm_timeout_s),
              [paths = run.paths, incarnation = run.incarnation](const WatchReport& report) {
                  note(paths, incarnation, report);
              },
              nodes_.get()) {
        if (nodes_) nodes_->stand_by(recorder_);
        clock_.mirror_to(recorder_.phase_word());
        mirror_signals_to(recorder_.signal_word());
        ranks_.record_in(&recorder_);
    }

    ~Flight() {
        ranks_.record_in(nullptr);
        mirror_signals_to(nullptr);
        clock_.mirror_to(nullptr);
    }

    Flight& operator=(Flight&&) = delete;

    FlightRecorder& recorder() { return recorder_; }

  private:
    PhaseClock& clock_;
    const Communicator ranks_;
    FlightRecorder recorder_;
    std::shared_ptr<NodeWatch> nodes_;  // null on one node
    Watchdog watchdog_;
};

RunHold::RunHold(const Start& start)
    : early(std::make_unique<EarlyFlight>(start.ranks, start.settings)) {}

RunHold::~RunHold() = default;

FlightRecorder& RunHold::recorder() const {
    return flight->recorder();
}

void take_run(RunHold& run, Start& start, Inputs& inputs, Contract& contract) {
    const Communicator& world = start.ranks;
    settle_run_data(start, inputs, contract.recorded);
    run.incarnation = std::stoll(from_root(
        world, [&] { return std::to_string(open_directory(run, start, inputs, contract)); }));
    run.paths = {start.settings.run};
    run.early->name_start(run.incarnation);
}

void introduce(const LoopParts& parts) {
    const Start& start = parts.start;
    RunHold& run = parts.run;
    open_run_log(start, run);
    const std::vector<RankRow> rows = share_node(start, run.share);
    print_once(start.settings.rank_table);
    std::vector<std::string> warnings = start.settings.warnings;
    std::ranges::copy(hardware_warnings(rows, parts.contract.most_useful),
                      std::back_inserter(warnings));
    if (run.directory) std::ranges::copy(run.directory->warnings(), std::back_inserter(warnings));
    for (const std::string& warning : warnings) once(Level::warn, "{}", warning);
    describe_run(parts);
    agree(start.ranks, [&] { run.flight = std::make_unique<Flight>(run, start); });
    run.early->hand_over();
    run.early.reset();
}

RunState state_of_run(const LoopParts& parts, RunPhase phase, std::string reason, ExitCode exit) {
    const TrainSettings& settings = parts.start.settings;
    return {.phase = phase,
            .step = parts.course.progress.step,
            .epoch = parts.course.progress.epoch,
            .reason = std::move(reason),
            .exit = static_cast<int>(exit),
            .steps_total = parts.contract.length.total_steps,
            .epochs = settings.epochs,
            .max_steps = settings.max_steps};
}

void write_state(const LoopParts& parts, RunPhase phase, std::string reason, ExitCode exit) {
    if (parts.run.directory)
        parts.run.directory->write_state(state_of_run(parts, phase, std::move(reason), exit));
}

void note_failure(const LoopParts& parts, const Error& error) {
    RunHold& run = parts.run;
    if (run.flight) run.recorder().mark_failed(static_cast<int>(error.exit_code()));
    ErrorEvent event = event_of(error);
    const auto* const agreed = dynamic_cast<const AgreedError*>(&error);
    if (agreed != nullptr) event.ranks = agreed->failed();
    const bool are_some = agreed != nullptr && !agreed->ranks().empty();
    const std::string who = are_some ? " (" + agreed->ranks() + ")" : "";
    log_event(event);
    try {
        if (run.directory)
            write_state(parts,
                        RunPhase::failed,
                        error.code() + ": " + error.what() + who,
                        error.exit_code());
        else if (agreed == nullptr)
            // Rank 0 is about to be ended by the launcher, and will not know why.
            write_failed_state(
                run.paths.root,
                run.incarnation,
                fmt::format(
                    "{}: rank {}: {}", error.code(), parts.start.ranks.rank(), error.what()),
                error.exit_code());
    } catch (const Error&) {
        // The run was taken over or its disk is gone: the first error is the one to show.
    }
}

}  // namespace lockstep
