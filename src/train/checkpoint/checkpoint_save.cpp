// SPDX-License-Identifier: Apache-2.0
// All ranks together save a checkpoint, beside the training where that is wanted:
//
//     training thread      order | forward, backward | update | ... | a step's votes | ...
//     copier                     copy ---------------+
//     writer                          check, hash, write, sync, vote  ...
//
// Weights and optimizer state change in updates alone, so the copy has the time of a forward and a
// backward pass; only an update that comes earlier waits. Each rank copies what it alone writes, so
// no rank waits for another rank's copy. The votes travel as scalars of the steps, and so all ranks
// enter the next stage of the save after the same step:
//
//     preparing   rank 0   fencing, free space, folder
//     writing     all      shards, and a list of each one's pieces for rank 0
//     committing  rank 0   fencing, manifest, rename, `latest`, retention
//
// What must never happen:
// - An update writes over what was not copied yet: TrainStep waits for is_copied() before it.
// - These threads call MPI: collectives of the training would meet them in another order.
// - Rank 0 commits while a shard is not on disk: it may only when all have voted that theirs are.
// - A save holds up the training: its threads are there before, since a new one takes a core from
//   its maker for a time slice; waking them takes none, and they hold no lock that a step takes.
// - The copy starves on busy cores: the copier is above the writer.
// - Steps show much of a save: as many as its cost says share the writer's work, unless somebody
//   waits for it.
// - A disk that does not answer holds a run for ever: see run/flight/watchdog.cpp.
//
// Tested: train/checkpoint/checkpoint_save_test.cpp (modes give equal bytes, an update that does
// not wait is seen, faults, an abandoned save), checkpoint_test.cpp, e2e/checkpoint_mode_test.cpp,
// soak/kill_resume, soak/crash_sweep.

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/tensor_files.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Without a branch and in blocks: at -O2 GCC 12 uses vectors only where it knows how often. A pass
// over 50 MB takes 3.3 ms instead of 12.
bool are_finite(std::span<const float> values) {
    constexpr std::size_t block = 64;
    std::uint32_t others = 0;
    const auto look_at = [&](float value) {
        others |=
            static_cast<std::uint32_t>(!(std::fabs(value) <= std::numeric_limits<float>::max()));
    };
    for (; values.size() >= block; values = values.subspan(block))
        for (std::size_t i = 0; i < block; ++i) look_at(values[i]);
    std::ranges::for_each(values, look_at);
    return others == 0;
}

void check_finite(std::span<const TensorMeta> tensors, std::span<const TensorPiece> pieces) {
    for (const TensorPiece& piece : pieces) {
        if (are_finite({piece.data, piece.count})) continue;
        const float* const found = std::find_if_not(
            piece.data, piece.data + piece.count, [](float value) { return std::isfinite(value); });
        throw Error("E701",
                    fmt::format("'{}' has a value that is not finite at element {}",
                                tensors[piece.tensor].name,
                                piece.start + static_cast<std::uint64_t>(found - piece.data)),
                    "no checkpoint is written, so that the last good one stays the newest",
                    "lower --lr, or check the data with 'lockstep data verify'");
    }
}

// With more than one checkpoint an old one can go; nothing else makes the new one smaller.
std::string way_to_room(const fs::path& root) {
    const std::vector<CheckpointInfo> kept = list_checkpoints(root);
    const std::string move =
        "move the run's folder to a file system with more room (mv), and give "
        "its new place with --run";
    return kept.size() < 2 ? "free space there, or " + move
                           : fmt::format("remove the oldest one: rm -r {}; or {}",
                                         shell_word(kept.front().path.string()),
                                         move);
}

// Another folder is no help to a run that has this one.
Error told_of_a_run(const Error& error, const fs::path& root) {
    if (error.code() == "E405") return Error("E405", error.what(), error.why(), way_to_room(root));
    if (error.code() == "E401")
        return Error("E401",
                     error.what(),
                     error.why(),
                     "let this user write there again, or move the run's folder (mv) and give its "
                     "new place with --run");
    return error;
}

void check_space(const fs::path& root, std::span<const TensorMeta> tensors) {
    std::uint64_t bytes = 1u << 20;
    for (const TensorMeta& tensor : tensors) bytes += tensor.count() * sizeof(float);
    const std::uint64_t free = free_bytes(root);
    check(free >= bytes, [&] {
        return Error(
            "E403",
            fmt::format("a checkpoint needs {} in '{}'", bytes_text(bytes), root.string()),
            fmt::format(
                "{} are free, and the last checkpoint is kept until the new one is complete",
                bytes_text(free)),
            way_to_room(root));
    });
}

// Returns the list of the shard's pieces as text. `wrote` is called after each part.
std::string write_shard(const fs::path& path,
                        const CheckpointPart& part,
                        const std::function<void(std::uint64_t)>& wrote,
                        FileAccess access) {
    std::vector<SafetensorsEntry> entries;
    for (const TensorPiece& piece : part.pieces) {
        entries.push_back(entry_of(part.tensors[piece.tensor], piece.start, piece.count));
        entries.back().values = {piece.data, piece.count};
    }
    write_safetensors(path, entries, wrote, access);
    Json list = Json::array();
    for (std::size_t i = 0; i < entries.size(); ++i)
        list.push_back(json_of_record(StoredPiece{part.pieces[i].tensor,
                                                  part.pieces[i].start,
                                                  part.pieces[i].count,
                                                  path.filename().string(),
                                                  entries[i].offset,
                                                  entries[i].hash.hex()}));
    return list.dump();
}

// Of the calling thread. A system that refuses lets it compete with the training. A thread of this
// policy never takes the core from the one that wakes it; one of the usual policy does, at nice 10
// for 2 to 5 ms (Linux 6.18).
void lower_priority(int nice) {
    constexpr int this_thread = 1, best_effort_last = 2 << 13 | 7;
    constexpr sched_param no_priority{};
    ::sched_setscheduler(0, SCHED_BATCH, &no_priority);
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);
    ::syscall(SYS_ioprio_set, this_thread, 0, best_effort_last);
}

}  // namespace

std::size_t CheckpointPart::changing_floats() const {
    std::size_t floats = 0;
    for (std::size_t i = 0; i < changing; ++i) floats += pieces[i].count;
    return floats;
}

SideThread::SideThread(int nice) {
    thread_ = std::thread([this, nice] {
        lower_priority(nice);
        for (int number = 1;; ++number) {
            for (int ordered = ordered_; ordered < number; ordered = ordered_)
                ordered_.wait(ordered);
            if (!work_) return;
            work_();
            done_ = number;
            done_.notify_one();
        }
    });
}

SideThread::~SideThread() {
    run(nullptr);
    thread_.join();
}

void SideThread::run(std::function<void()> work) {
    wait();
    work_ = std::move(work);
    ++ordered_;
    ordered_.notify_one();
}

void SideThread::wait() const {
    for (int done = done_; done < ordered_; done = done_) done_.wait(done);
}

SaveThreads::SaveThreads(std::size_t room) : staging(room * sizeof(float)) {
    copier.run([this] {
        // Part by part: what else changes the process's memory waits for each. The contents stay,
        // so a copy may be on its way. Linux before 5.14 refuses.
        constexpr std::size_t part = 2 << 20;
        for (auto rest = staging.bytes(); !rest.empty();) {
            const auto now = rest.first(std::min(part, rest.size()));
            ::madvise(now.data(), now.size(), MADV_POPULATE_WRITE);
            rest = rest.subspan(now.size());
        }
    });
}

CheckpointSave::CheckpointSave(const Communicator& ranks,
                               CheckpointPlace place,
                               CheckpointPart part,
                               SaveThreads* threads)
    : ranks_(ranks),
      rank_(ranks.rank()),
      size_(ranks.size()),
      place_(std::move(place)),
      part_(std::move(part)),
      threads_(threads),
      unfinished_(unfinished_checkpoint(place_, part_.state.step)) {
    for (const TensorPiece& piece : part_.pieces) bytes_ += piece.count * sizeof(float);
    if (threads_ == nullptr) return;
    expect(threads_->staging.bytes().size() >= part_.changing_floats() * sizeof(float),
           "there is room for what changes");
    may_write_ = bytes_ / static_cast<std::uint64_t>(threads_->spread);
    threads_->copier.run([this] {
        copy();
        is_copied_ = true;
        is_copied_.notify_one();
        threads_->writer.run([this] { work(); });
    });
}

CheckpointSave::~CheckpointSave() {
    if (threads_ == nullptr) return;
    allow(Stage::ended);
    hurry();
    threads_->copier.wait();
    threads_->writer.wait();
}

// The writer's. It passes from stage to stage as all ranks do.
void CheckpointSave::work() {
    double since_s = thread_processor_s();
    try {
        for (Stage stage = Stage::preparing; stage < Stage::done; stage = after(stage)) {
            if (works_in(stage)) work_in(stage);
            busy_s_ += thread_processor_s() - std::exchange(since_s, thread_processor_s());
            pass(after(stage));
        }
    } catch (const Abandoned&) {
    } catch (const std::exception& exception) {
        failure_ = as_error(exception);
        reached_ = Stage::ended;
        give_sign();
    }
}

void CheckpointSave::work_in(Stage stage) try {
    if (stage == Stage::preparing) prepare();
    if (stage == Stage::writing) write();
    if (stage == Stage::committing) commit();
} catch (const Error& error) {
    // A start that replaced this one has removed what it had not committed.
    if (place_.check_still_ours) place_.check_still_ours();
    throw told_of_a_run(error, place_.root);
}

void CheckpointSave::copy() {
    const double since_s = thread_processor_s();
    auto* to = reinterpret_cast<float*>(threads_->staging.bytes().data());
    for (TensorPiece& piece : std::span(part_.pieces).first(part_.changing)) {
        std::memcpy(to, piece.data, piece.count * sizeof(float));
        piece.data = std::exchange(to, to + piece.count);
    }
    busy_s_ = thread_processor_s() - since_s;
}

void CheckpointSave::prepare() const {
    if (place_.check_still_ours) place_.check_still_ours();  // a run that was moved has no ckpt
    make_own_folder(place_.root);
    check_space(place_.root, part_.tensors);
    fs::remove_all(unfinished_);
    make_own_folder(unfinished_);
}

void CheckpointSave::write() {
    if (part_.also) part_.also();
    check_finite(part_.tensors, part_.pieces);
    std::optional<Progress> progress;  // rank 0's share stands for all
    if (threads_ == nullptr) progress.emplace("saving", bytes_, ProgressUnit::bytes);
    write_file_atomically(
        list_of(rank_),
        write_shard(
            unfinished_ / fmt::format("shard-{:05}-of-{:05}.safetensors", rank_, size_),
            part_,
            [&](std::uint64_t bytes) {
                if (progress) progress->update(bytes);
                if (threads_ != nullptr) rest_at(bytes);
                if (allowed_ == Stage::ended) throw Abandoned();
                threads_ != nullptr ? give_sign() : mark_phase();
            },
            access()));
}

// Of the pieces in a rank's shard, for rank 0.
fs::path CheckpointSave::list_of(int rank) const {
    return unfinished_ / fmt::format("pieces-{:05}.json", rank);
}

void CheckpointSave::commit() {
    CheckpointManifest manifest{part_.state, part_.tensors, {}};
    for (int rank = 0; rank < size_; ++rank) {
        const fs::path list = list_of(rank);
        for (const Json& piece : parse_json(read_file(list), list.string()))
            manifest.pieces.push_back(record_from_json<StoredPiece>(piece, list.string()));
        fs::remove(list);
    }
    manifest.state.parameter_hash =
        stored_parameter_hash(unfinished_, manifest, part_.frozen_from, access());
    commit_checkpoint(place_, unfinished_, part_.state, checkpoint_manifest_text(manifest));
    if (place_.note_committed) place_.note_committed();
}

// Says that the thread is done with the stage before `next`, and waits until it may enter that.
void CheckpointSave::pass(Stage next) {
    reached_ = next;
    give_sign();
    Stage allowed = allowed_;
    for (; allowed < next; allowed = allowed_) allowed_.wait(allowed);
    if (allowed == Stage::ended) throw Abandoned();
}

void CheckpointSave::allow(Stage next) {
    allowed_ = next;
    allowed_.notify_one();
}

// The writer's: waits until the steps let it write more than `bytes`. It looks again and again, for
// to wake it takes 10 us of a step.
void CheckpointSave::rest_at(std::uint64_t bytes) {
    const double since_s = now_s();
    while (may_write_ < bytes) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    rested_s_ += now_s() - since_s;
}

SaveVotes CheckpointSave::votes() const {
    const Stage reached = reached_;
    const bool failed = reached == Stage::ended;
    return {.done = works_in(stage_) && reached > stage_ && !failed ? 1 : 0,
            .failed = failed ? 1 : 0};
}

bool CheckpointSave::advance(const SaveVotes& agreed) {
    if (agreed.failed > 0) finish();
    if (threads_ != nullptr)
        may_write_ += bytes_ / static_cast<std::uint64_t>(threads_->spread) + 1;
    if (agreed.done == (stage_ == Stage::writing ? size_ : 1)) next_stage();
    return stage_ == Stage::done;
}

void CheckpointSave::finish() {
    hurry();
    while (stage_ != Stage::done) {
        std::optional<PhaseScope> waiting;
        agree(ranks_, [&] {
            if (works_in(stage_)) threads_ != nullptr ? wait_for_own() : work_in(stage_);
            if (place_.clock != nullptr) waiting.emplace(*place_.clock, Phase::wait);
        });
        next_stage();
    }
}

void CheckpointSave::wait_for_own() const {
    for (int seen = signs_; reached_ <= stage_; seen = signs_) {
        signs_.wait(seen);
        mark_phase();
    }
    if (reached_ == Stage::ended) throw Error(*failure_);
}

// The writer's: of life, to the training thread that waits.
void CheckpointSave::give_sign() {
    ++signs_;
    signs_.notify_one();
}

// The training thread's: the watchdog sees from it that a long save goes on.
void CheckpointSave::mark_phase() const {
    if (place_.clock != nullptr) place_.clock->enter(Phase::checkpoint);
}

// When the ranks that work in this stage are done with it.
void CheckpointSave::next_stage() {
    stage_ = after(stage_);
    allow(stage_);
}

}  // namespace lockstep
