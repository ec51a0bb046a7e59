// SPDX-License-Identifier: Apache-2.0
// When the run's checkpoints are written, and what they hold. What a checkpoint says besides its
// tensors is of the step that ordered it, however many steps later it is committed.
//
// What must never happen:
// - A checkpoint that something depends on is left out because another one is still being written:
//   only a period may be, and none that a rollback goes back to.
// - state.json names a checkpoint that is not there yet, or answers a request to save with an
//   earlier one.
// - A save in flight outlives the threads and the copy that it uses, when an error ends the loop.
//
// Tested: e2e/checkpoint_mode_test.cpp, e2e/control_test.cpp, e2e/tasks_test.cpp (rollbacks).

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/host_name.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/losses.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/memory.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/trace.hpp"

#include "loop/loop.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <string_view>

namespace lockstep {
namespace {

// Collective. The run's newest whole checkpoint, or that of `step` alone; nothing if there is none.
std::optional<CheckpointState> load(const LoopParts& parts, std::optional<std::int64_t> step = {}) {
    const ReplicaTensors tensors = parts.engine.replica->tensors();
    return load_checkpoint(
        parts.start.ranks, parts.run.paths.checkpoints(), tensors.metas, tensors.pieces, step);
}

// Of the run that this one begins from. The parameters' averages are used with any optimizer.
Counters load_source_state(const LoopParts& parts) {
    Counters counters = parts.engine.replica->counters();
    const InitialWeights& weights = parts.contract.weights;
    if (weights.checkpoint.empty()) return counters;
    const Communicator& world = parts.start.ranks;
    const CheckpointManifest manifest =
        agree(world, [&] { return read_checkpoint_manifest(weights.checkpoint); });
    const std::string_view begin = weights.has_state ? "optimizer." : "optimizer.average.";
    const ReplicaTensors tensors = parts.engine.replica->tensors();
    std::vector<TensorPiece> pieces;
    for (TensorPiece piece : tensors.pieces) {
        const TensorMeta& own = tensors.metas[piece.tensor];
        const auto found = std::ranges::find(manifest.tensors, own.name, &TensorMeta::name);
        if (!own.name.starts_with(begin) || found == manifest.tensors.end() ||
            found->shape != own.shape)
            continue;
        piece.tensor = static_cast<std::size_t>(found - manifest.tensors.begin());
        pieces.push_back(piece);
    }
    const auto state = load_checkpoint(
        world, weights.checkpoint.parent_path(), manifest.tensors, pieces, manifest.state.step);
    if (state && weights.has_state) parts.course.progress.updates = state->updates;
    if (state)
        for (const auto& [name, value] : state->counters) counters[name] = value;
    return counters;
}

// Of --checkpoint-every auto, until a save's cost is known; and of a first start.
constexpr double first_interval_s = 60, usual_mtbf_s = 24 * 3600;

CheckpointState state_of(const LoopParts& parts) {
    const TrainSettings& settings = parts.start.settings;
    const JobProgress& progress = parts.course.progress;
    return {
        .step = progress.step,
        .epoch = progress.epoch,
        .updates = progress.updates,
        .order = {.kind = settings.order,
                  .data_digest = parts.inputs.data_digest(),
                  .seed = settings.seed,
                  .lanes = settings.lanes,
                  .window_blocks = settings.window_blocks,
                  .epoch = progress.position.epoch,
                  .consumed = progress.position.consumed},
        .contract = parts.contract.bits,
        .evaluated = progress.evaluated,
        .best = progress.best,
        .loss_scale = progress.loss_scale,
        .retention = retention_of(settings, parts.contract.length, progress.best, progress.resumed),
        .ranks = parts.start.ranks.size(),
        .virtual_ranks = settings.virtual_ranks,
        .counters = parts.engine.replica->counters()};
}

CheckpointPart part_of(const LoopParts& parts) {
    ReplicaTensors tensors = parts.engine.replica->tensors_to_come();
    if (!parts.start.ranks.is_root()) tensors.pieces.resize(tensors.own_pieces);
    if (!tensors.is_first_copy) tensors.pieces.clear();
    CheckpointPart part{.state = state_of(parts),
                        .tensors = std::move(tensors.metas),
                        .pieces = std::move(tensors.pieces),
                        .frozen_from = tensors.frozen_from,
                        .memory = std::move(tensors.memory)};
    if (!parts.engine.gpu) part.changing = std::min(tensors.own_pieces, part.pieces.size());
    part.also = [&course = parts.course, wait = std::move(tensors.wait)] {
        if (wait) wait();
        if (course.ledger) course.ledger->sync();
        course.data->check_own_files();
    };
    return part;
}

constexpr const char* written = "checkpoint written";

CheckpointPlace place_of(const LoopParts& parts) {
    CheckpointPlace place{.root = parts.run.paths.checkpoints(),
                          .incarnation = parts.run.incarnation,
                          .check_still_ours = {},
                          .clock = &parts.run.clock};
    if (parts.run.directory) {
        const RunDirectory& directory = *parts.run.directory;
        place.check_still_ours = [&directory] { directory.check_still_ours(); };
        place.note_committed =
            directory.state_writer(state_of_run(parts, RunPhase::running, written));
    }
    return place;
}

}  // namespace

// May take as long as it likes: the watchdog ends no phase of data.
void load_data(const LoopParts& parts) {
    const PhaseScope scope(parts.run.clock, Phase::data);
    parts.course.data = std::make_unique<DataFeed>(parts.start.ranks,
                                                   parts.inputs.data,
                                                   parts.start.settings,
                                                   parts.start.node.usable_memory_bytes(),
                                                   std::max(parts.run.share.cpus.cpus, 1));
}

void set_out(const LoopParts& parts) {
    Course& course = parts.course;
    const auto found = load(parts);
    parts.engine.replica->start(found ? found->counters : load_source_state(parts));
    if (found) {
        course.progress = {.step = found->step,
                           .epoch = found->epoch,
                           .updates = found->updates,
                           .position = {found->order.epoch, found->order.consumed},
                           .evaluated = found->evaluated,
                           .best = found->best,
                           .loss_scale = found->loss_scale,
                           .resumed = found->step};
        once(Level::info, "resumed from step {} (epoch {})", found->step, found->epoch);
        if (const TraceSteps& trace = parts.start.settings.trace;
            trace.last > 0 && trace.last <= found->step)
            once(Level::info,
                 "--trace {}: these steps are done, and this start traces none",
                 trace_steps_text(trace));
    }
    agree_on_torch(parts.start.ranks, [&] {
        const InputKernels* const kernels = parts.engine.kernels();
        course.stream = course.data->batches(parts.start.leaves(),
                                             course.progress.position,
                                             kernels ? kernels->page_lock : PageLock());
        course.feed = make_feed(*course.stream, *parts.engine.input, kernels);
    });
}

void begin_ledger(const LoopParts& parts) {
    const Communicator& world = parts.start.ranks;
    const Inputs& inputs = parts.inputs;
    agree(world, [&] {
        if (!parts.start.settings.ledger) return;
        parts.course.ledger.emplace(
            parts.run.paths.ledger(),
            LedgerHead{
                .samples = inputs.data->samples(),
                .data_digest = inputs.data_digest(),
                .rank = world.rank(),
                .ranks = world.size(),
                .incarnation = static_cast<std::uint64_t>(parts.run.incarnation),
                .start = parts.course.progress.position,
                .dropped = dropped_samples(parts.start.settings, inputs.samples) +
                           static_cast<std::uint32_t>(inputs.data->samples() - inputs.samples)});
    });
}

// The data go on: the same batch would end the same way. Whatever checkpoints were due since the
// last time have its weights, too, if nothing was trained since.
void roll_back(const LoopParts& parts) {
    const PhaseScope scope(parts.run.clock, Phase::checkpoint);
    Course& course = parts.course;
    const std::int64_t step =
        rollback_step(parts.start.settings, parts.contract.length, course.progress.step - 1);
    const bool is_there = course.rolled_back_to == course.progress.updates;
    if (!is_there) {
        const auto found = load(parts, step);
        if (!found)
            agree_on_failure(parts.start.ranks, no_rollback_error(course.progress.step, step));
        parts.engine.replica->start(found->counters);
        course.progress.updates = found->updates;
        course.rolled_back_to = found->updates;
    }
    once(Level::warn,
         "step {}: loss or gradient is not finite; weights are {} those of step {}",
         course.progress.step,
         is_there ? "still" : "again",
         step);
}

void Course::wait_for_copy(PhaseClock& clock) const {
    if (!save || save->is_copied()) return;
    const PhaseScope scope(clock, Phase::checkpoint);
    save->wait_copied();
}

Saves::Saves(const LoopParts& parts, TimeLimit& limit)
    : parts_(parts),
      settings_(parts.start.settings),
      limit_(limit),
      mode_(settings_.checkpoint_mode),
      last_{parts.course.progress.step, parts.course.progress.epoch, now_s()},
      interval_s_(std::min(first_interval_s, mtbf_s() / 10)) {}

Saves::~Saves() {
    const PhaseScope scope(parts_.run.clock, Phase::checkpoint);  // its threads may hang
    parts_.course.save.reset();
}

bool Saves::has_clock_passed() const {
    const Period& period = settings_.checkpoint_every;
    double every_s = std::numeric_limits<double>::infinity();
    if (period.unit == Period::Unit::automatic) every_s = interval_s_;
    if (period.unit == Period::Unit::seconds) every_s = static_cast<double>(period.count);
    return now_s() - last_.time_s >= every_s;
}

// Returns true if a save goes on beside steps of this start before its end; the last one does not.
bool Saves::may_overlap() const {
    const RunLength& length = parts_.contract.length;
    const std::int64_t steps = steps_of(settings_.checkpoint_every, length);
    const std::int64_t done = parts_.course.progress.step;
    return saves_beside_steps(settings_) && !parts_.engine.gpu &&
           (steps == 0 || (done / steps + 1) * steps < length.total_steps);
}

// As the user says, or as earlier starts of this run ended.
double Saves::mtbf_s() const {
    const auto ends = static_cast<double>(parts_.run.incarnation - 1);
    if (settings_.mtbf_s > 0) return settings_.mtbf_s;
    if (ends < 1 || !parts_.run.directory) return usual_mtbf_s;
    const auto begun_s = parse_utc(read_run_record(parts_.run.paths.root).created_at);
    return begun_s ? std::max(unix_time_s() - *begun_s, 1.0) / ends : usual_mtbf_s;
}

// For rank 0.
void Saves::choose_interval() {
    const double cost_s = cost_.mean_s();
    if (settings_.checkpoint_every.unit != Period::Unit::automatic) return;
    interval_s_ = save_interval_s(cost_s, mtbf_s(), settings_.checkpoint_overhead);
    constexpr double worth_a_line = 1.2;
    if (interval_s_ < told_s_ * worth_a_line && told_s_ < interval_s_ * worth_a_line) return;
    told_s_ = interval_s_;
    once(Level::info,
         "checkpoints: one each {}, as a save costs {} and failures are {} apart; saves then cost "
         "{:.2g} % of the time",
         duration_text(interval_s_),
         duration_text(cost_s),
         duration_text(mtbf_s()),
         100 * cost_s / interval_s_);
}

void Saves::after_step(const SaveVotes& agreed, double wall_s) {
    // By now steps have taken what memory they need.
    constexpr std::int64_t settled = 10;
    if (++steps_ == settled && mode_ == CheckpointMode::overlapped && may_overlap()) {
        const PhaseScope scope(parts_.run.clock, Phase::checkpoint);
        can_overlap(part_of(parts_));
    }
    if (cost_.add_step(wall_s, is_in_flight()) && parts_.start.ranks.is_root()) choose_interval();
    if (!is_in_flight()) return;
    const PhaseScope scope(parts_.run.clock, Phase::checkpoint);
    if (parts_.course.save->advance(agreed)) return note_committed();
    if (!parts_.start.ranks.is_root() || !has_clock_passed()) return;
    last_.time_s = now_s();
    leave_out();
}

void Saves::finish() {
    if (!is_in_flight()) return;
    const PhaseScope scope(parts_.run.clock, Phase::checkpoint);
    parts_.course.save->finish();
    note_committed();
}

void Saves::now() {
    finish();
    begin(CheckpointMode::blocking);
    finish();
    if (left_out_ > 1)
        once(Level::warn,
             "{} checkpoints were left out, each because the one before was still being written",
             left_out_);
}

void Saves::order(SaveReason reason) {
    if (is_in_flight() && reason == SaveReason::request) {
        is_wanted_ = true;
        return parts_.course.save->hurry();
    }
    if (is_in_flight() && reason == SaveReason::period &&
        settings_.on_nonfinite != NonFinite::rollback)
        return leave_out();
    finish();
    begin(mode_);
    if (mode_ == CheckpointMode::blocking) finish();
}

// Returns the id of a pending request, which the next state to be written would answer; "": none.
std::string Saves::request_to_save() const {
    if (!parts_.run.directory) return "";
    const auto& asked = parts_.run.directory->control_request();
    return asked && asked->action == ControlAction::save ? asked->id : "";
}

// Each epoch is the period that nobody asked for: where epochs are short, it is no news that a save
// of some milliseconds lasts longer.
void Saves::leave_out() {
    constexpr double usual_s = 1;
    const bool is_asked_for =
        parts_.start.settings.checkpoint_every != Period{Period::Unit::epochs, 1};
    if (!is_asked_for && now_s() - ordered_s_ < usual_s) return;
    if (std::has_single_bit(++left_out_))
        once(Level::warn,
             "the checkpoint of step {} is left out, because that of step {} is still being "
             "written after {} ({} left out so far): a longer --checkpoint-every fits this disk, "
             "if it answers at all",
             parts_.course.progress.step,
             parts_.course.save->state().step,
             duration_text(now_s() - ordered_s_),
             left_out_);
}

// Makes what saves beside the steps need; false if a rank has too little for it. A GPU's values are
// in memory of their own.
bool Saves::can_overlap(const CheckpointPart& part) {
    if (threads_) return true;
    const std::size_t floats = part.changing_floats();
    const auto ranks_here = static_cast<std::uint64_t>(parts_.run.share.ranks_here);
    const std::uint64_t bytes = floats * sizeof(float);
    try {
        agree(parts_.start.ranks, [&] {
            const std::uint64_t left = memory_left();
            check(bytes * ranks_here <= left,
                  "E225",
                  fmt::format("a copy of what a rank writes needs {}, and '{}' has {} "
                              "left for {} rank(s)",
                              bytes_text(bytes),
                              host_name(),
                              bytes_text(left),
                              ranks_here));
            threads_ = std::make_unique<SaveThreads>(floats);
        });
    } catch (const AgreedError& refusal) {
        mode_ = CheckpointMode::blocking;
        threads_.reset();
        once(Level::warn, "checkpoints are written between two steps: {}", refusal.what());
    }
    return threads_ != nullptr;
}

// Before a save has shown its cost, a core that does nothing else is taken to write 500 MB/s.
std::int64_t Saves::spread_of(const CheckpointPart& part) const {
    constexpr double guess_bytes_s = 500e6;
    const Period& period = settings_.checkpoint_every;
    const double step_s = cost_.usual_step_s();
    double steps = static_cast<double>(steps_of(period, parts_.contract.length));
    if (period.unit == Period::Unit::automatic) steps = interval_s_ / step_s;
    if (period.unit == Period::Unit::seconds) steps = static_cast<double>(period.count) / step_s;
    const bool has_spare_core = parts_.run.share.cpus.cpus > settings_.threads;
    const auto bytes = static_cast<double>(part.changing_floats() * sizeof(float));
    return cost_.spread(has_spare_core ? 0 : bytes / guess_bytes_s, steps);
}

void Saves::begin(CheckpointMode mode) {
    const PhaseScope scope(parts_.run.clock, Phase::checkpoint);
    const Communicator& world = parts_.start.ranks;
    Course& course = parts_.course;
    ordered_s_ = last_.time_s = now_s();
    ++course.saves;
    if (course.ledger) agree(world, [&] { course.ledger->write(); });
    // On a GPU it takes page-locked memory, which a node may lack.
    CheckpointPart part =
        parts_.engine.gpu ? agree(world, [&] { return part_of(parts_); }) : part_of(parts_);
    const bool overlaps = mode == CheckpointMode::overlapped && can_overlap(part);
    is_wanted_ = false;
    answered_ = request_to_save();
    if (overlaps) threads_->spread = spread_of(part);
    course.save = std::make_unique<CheckpointSave>(
        world, place_of(parts_), std::move(part), overlaps ? threads_.get() : nullptr);
    begin_s_ = now_s() - ordered_s_;
}

void Saves::note_committed() {
    const CheckpointState& state = parts_.course.save->state();
    last_ = {state.step, state.epoch, now_s()};
    const double took_s = last_.time_s - ordered_s_, busy_s = parts_.course.save->busy_s();
    limit_.note_save(took_s - parts_.course.save->rested_s());
    const bool was_beside = busy_s > 0;  // else it may be the run's last
    if (was_beside || mode_ == CheckpointMode::blocking)
        cost_.add_save(was_beside ? begin_s_ : took_s, busy_s);
    if (!answered_.empty() && request_to_save() == answered_) {
        RunState then = state_of_run(parts_, RunPhase::running, written);
        then.step = state.step;
        then.epoch = state.epoch;
        parts_.run.directory->write_state(then);
    }
    parts_.course.save.reset();
}

}  // namespace lockstep
