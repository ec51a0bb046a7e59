// SPDX-License-Identifier: Apache-2.0
// All ranks together save a checkpoint, beside the training where that is wanted:
//
//     training thread      order | forward, backward | update | ... | a step's votes | ...
//     thread of the save         copy ---------------+ check, hash, write, sync, vote  ...
//
// Weights and optimizer state change in updates alone, so the copy has the time of a forward and a
// backward pass; only an update that comes earlier waits. Each rank copies what it alone writes, so
// no rank waits for another rank's copy. The votes travel as scalars of the steps, and so all ranks
// enter the next stage of the save after the same step:
//
//     preparing   rank 0   fencing, free space, folder
//     writing     all      shards; then their lists of pieces go to rank 0
//     committing  rank 0   fencing, manifest, rename, `latest`, retention
//
// What must never happen:
// - An update writes over what was not copied yet: TrainStep waits for is_copied() before it.
// - This thread calls MPI: collectives of the training would meet them in another order.
// - Rank 0 commits while a shard is not on disk: it may only when all have voted that theirs are.
// - A thread at low priority holds up the copy: the priority is lowered after it.
//
// Tested: train/checkpoint/checkpoint_save_test.cpp (modes give equal bytes, an update that does
// not wait is seen, faults, an abandoned save), checkpoint_test.cpp, e2e/checkpoint_mode_test.cpp,
// soak/kill_resume.

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/run/safetensors.hpp"
#include "lockstep/train/checkpoint.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep {
namespace {

void check_finite(std::span<const TensorMeta> tensors, std::span<const TensorPiece> pieces) {
    for (const TensorPiece& piece : pieces)
        for (std::uint64_t i = 0; i < piece.count; ++i)
            check(std::isfinite(piece.data[i]), [&] {
                return Error("E701",
                             fmt::format("'{}' has a value that is not finite at element {}",
                                         tensors[piece.tensor].name,
                                         piece.start + i),
                             "no checkpoint is written, so that the last good one stays the newest",
                             "lower --lr, or check the data with 'lockstep data verify'");
            });
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
                        const std::function<void(std::uint64_t)>& wrote) {
    std::vector<SafetensorsEntry> entries;
    for (const TensorPiece& piece : part.pieces) {
        entries.push_back(entry_of(part.tensors[piece.tensor], piece.start, piece.count));
        entries.back().values = {piece.data, piece.count};
    }
    write_safetensors(path, entries, wrote);
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

// Of the calling thread. A system that refuses lets it compete with the training.
void lower_priority() {
    constexpr int lowest = 19, this_thread = 1, best_effort_last = 2 << 13 | 7;
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), lowest);
    ::syscall(SYS_ioprio_set, this_thread, 0, best_effort_last);
}

}  // namespace

std::size_t CheckpointPart::changing_floats() const {
    std::size_t floats = 0;
    for (std::size_t i = 0; i < changing; ++i) floats += pieces[i].count;
    return floats;
}

CheckpointSave::CheckpointSave(const Communicator& ranks,
                               CheckpointPlace place,
                               CheckpointPart part,
                               CheckpointMode mode,
                               std::span<float> staging)
    : ranks_(ranks),
      rank_(ranks.rank()),
      size_(ranks.size()),
      place_(std::move(place)),
      part_(std::move(part)),
      mode_(mode),
      staging_(staging),
      unfinished_(unfinished_checkpoint(place_, part_.state.step)) {
    expect(mode == CheckpointMode::blocking || staging.size() >= part_.changing_floats(),
           "there is room for what changes");
    try {
        thread_ = std::thread([this] { work(); });
    } catch (const std::system_error& refused) {
        failure_ = as_error(refused);
        is_copied_ = true;
    }
}

CheckpointSave::~CheckpointSave() {
    {
        const std::lock_guard lock(mutex_);
        is_abandoned_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void CheckpointSave::work() {
    try {
        copy();
        if (rank_ == 0) prepare();
        pass(Stage::writing);
        write();
        pass(Stage::committing);
        if (rank_ != 0) return;
        commit();
        pass(Stage::done);
    } catch (const Abandoned&) {
    } catch (const std::exception& exception) {
        const std::lock_guard lock(mutex_);
        failure_ = as_error(exception);
        changed_.notify_all();
    }
}

void CheckpointSave::copy() {
    if (mode_ == CheckpointMode::overlapped) {
        float* to = staging_.data();
        for (TensorPiece& piece : std::span(part_.pieces).first(part_.changing)) {
            std::memcpy(to, piece.data, piece.count * sizeof(float));
            piece.data = std::exchange(to, to + piece.count);
        }
        lower_priority();
    }
    const std::lock_guard lock(mutex_);
    is_copied_ = true;
    changed_.notify_all();
}

void CheckpointSave::prepare() const {
    if (place_.check_still_ours) place_.check_still_ours();  // a run that was moved has no ckpt
    make_own_folder(place_.root);
    check_space(place_.root, part_.tensors);
    fs::remove_all(unfinished_);
    make_own_folder(unfinished_);
}

void CheckpointSave::write() {
    check_finite(part_.tensors, part_.pieces);
    if (part_.sync_others) part_.sync_others();
    std::uint64_t total = 0;
    for (const TensorPiece& piece : part_.pieces) total += piece.count * sizeof(float);
    std::optional<Progress> progress;  // rank 0's share stands for all
    if (mode_ == CheckpointMode::blocking) progress.emplace("saving", total, ProgressUnit::bytes);
    written_ =
        write_shard(unfinished_ / fmt::format("shard-{:05}-of-{:05}.safetensors", rank_, size_),
                    part_,
                    [&](std::uint64_t bytes) {
                        if (progress) progress->update(bytes);
                        const std::lock_guard lock(mutex_);
                        if (is_abandoned_) throw Abandoned();
                    });
}

void CheckpointSave::commit() {
    CheckpointManifest manifest{part_.state, part_.tensors, {}};
    for (const std::string& list : lists_)
        for (const Json& piece : parse_json(list, "piece list"))
            manifest.pieces.push_back(record_from_json<StoredPiece>(piece, "piece list"));
    manifest.state.parameter_hash = stored_parameter_hash(unfinished_, manifest, part_.frozen_from);
    commit_checkpoint(place_, unfinished_, part_.state.step, checkpoint_manifest_text(manifest));
    if (place_.note_committed) place_.note_committed();
}

// Says that the thread is done with the stage before `next`, and waits until it may enter that.
void CheckpointSave::pass(Stage next) {
    std::unique_lock lock(mutex_);
    reached_ = next;
    changed_.notify_all();
    changed_.wait(lock, [&] { return allowed_ >= next || is_abandoned_; });
    if (is_abandoned_) throw Abandoned();
}

bool CheckpointSave::is_copied() const {
    const std::lock_guard lock(mutex_);
    return is_copied_;
}

void CheckpointSave::wait_copied() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return is_copied_; });
}

SaveVotes CheckpointSave::votes() const {
    const std::lock_guard lock(mutex_);
    return {.done = works_in(stage_) && reached_ > stage_ ? 1 : 0, .failed = failure_ ? 1 : 0};
}

bool CheckpointSave::advance(const SaveVotes& agreed) {
    if (agreed.failed > 0) finish();
    if (agreed.done == (stage_ == Stage::writing ? size_ : 1)) next_stage();
    return stage_ == Stage::done;
}

void CheckpointSave::finish() {
    while (stage_ != Stage::done) {
        std::optional<PhaseScope> waiting;
        agree(ranks_, [&] {
            wait_for_own();
            if (place_.clock != nullptr) waiting.emplace(*place_.clock, Phase::wait);
        });
        next_stage();
    }
}

void CheckpointSave::wait_for_own() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return failure_ || reached_ > stage_ || !works_in(stage_); });
    if (failure_) throw Error(*failure_);
}

// Collective, when the ranks that work in this stage are done with it.
void CheckpointSave::next_stage() {
    if (stage_ == Stage::writing) lists_ = ranks_.gather(written_);
    stage_ = static_cast<Stage>(static_cast<int>(stage_) + 1);
    const std::lock_guard lock(mutex_);
    allowed_ = stage_;
    changed_.notify_all();
}

void save_checkpoint(const Communicator& ranks,
                     const CheckpointPlace& place,
                     const CheckpointState& state,
                     std::span<const TensorMeta> tensors,
                     std::span<const TensorPiece> pieces) {
    CheckpointSave(ranks,
                   place,
                   {.state = state,
                    .tensors = {tensors.begin(), tensors.end()},
                    .pieces = {pieces.begin(), pieces.end()}},
                   CheckpointMode::blocking)
        .finish();
}

}  // namespace lockstep
