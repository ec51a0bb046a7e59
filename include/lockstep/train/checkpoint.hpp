// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints are written by any number of ranks and read by any other number.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/pages.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

namespace lockstep {

/// What one rank gives to a checkpoint.
struct CheckpointPart {
    CheckpointState state;            ///< state of the run; the commit adds parameter_hash
    std::vector<TensorMeta> tensors;  ///< all tensors, the same on all ranks
    std::vector<TensorPiece> pieces;  ///< of this rank; those of all ranks cover `tensors` once
    std::size_t changing = 0;         ///< number of first pieces that the next update changes
    /// Tensors from here on are frozen parameters, which parameter_hash has after the counters.
    std::size_t frozen_from = std::numeric_limits<std::size_t>::max();
    std::shared_ptr<const void> memory{};  ///< owns those of the pieces that nobody else keeps
    /// Called on the save's thread before this rank writes: makes durable, and checks, what else
    /// belongs to this state. What it throws fails the save.
    std::function<void()> also{};

    std::size_t changing_floats() const;  ///< number of floats of the changing pieces
};

/// How far ranks are with the present stage of a save. Votes of all ranks are added up.
struct SaveVotes {
    int done = 0;    ///< number of ranks that are ready for the next stage
    int failed = 0;  ///< number of ranks that failed
};

/// A thread that works beside the training, at a lower priority.
class SideThread {
  public:
    /// Errors: std::system_error if the system has no more threads.
    explicit SideThread(int nice);

    /// Waits for what it does.
    ~SideThread();
    SideThread& operator=(SideThread&&) = delete;

    /// Begins `work`, which throws nothing, when what it does is done.
    void run(std::function<void()> work);

    /// Waits until it has nothing to do.
    void wait() const;

  private:
    std::atomic<int> ordered_ = 0, done_ = 0;
    std::function<void()> work_;
    std::thread thread_;  ///< last: it uses the others
};

/// What saves beside the steps need, one at a time.
struct SaveThreads {
    /// For saves whose changing pieces have at most `room` floats. The copier asks for the pages at
    /// once, for a first copy would take ten times as long as others. Errors: E225,
    /// std::system_error.
    explicit SaveThreads(std::size_t room);

    Pages staging;
    std::int64_t spread = 1;  ///< number of steps that the next save is written beside
    SideThread writer{15}, copier{5};
};

/// One save. Its stages: rank 0 prepares the folder, all ranks write their shards, rank 0 commits.
/// Beside the steps, each rank works on threads of its own, which call no MPI; the training thread
/// moves all ranks to the next stage, after a step whose votes say so, or in finish(). Commit
/// order: temporary shards, hashes, fsync, all ranks well, fencing, manifest, fsync, rename, fsync,
/// `latest`, retention. Errors (on all ranks): E701 non-finite values, E403, E405, E402, E408.
class CheckpointSave {
  public:
    /// Begins beside the steps with `threads`: changing pieces are copied; until is_copied() they
    /// must not change. Without: finish() does all, and pieces must not change before.
    CheckpointSave(const Communicator& ranks,
                   CheckpointPlace place,
                   CheckpointPart part,
                   SaveThreads* threads = nullptr);

    /// Abandons the save if it is not committed. Waits for its threads.
    ~CheckpointSave();
    CheckpointSave& operator=(CheckpointSave&&) = delete;

    /// Returns the state that is saved.
    const CheckpointState& state() const { return part_.state; }

    /// Returns true if the pieces may change.
    bool is_copied() const { return is_copied_; }

    /// Waits until they may.
    void wait_copied() const { is_copied_.wait(false); }

    /// Returns this rank's votes for the next step.
    SaveVotes votes() const;

    /// Returns the processor time of this rank's threads, once the checkpoint is there.
    double busy_s() const { return busy_s_; }

    /// Returns how long the writer waited for steps to write beside, once the checkpoint is there.
    double rested_s() const { return rested_s_; }

    /// Lets this rank write as quickly as it can, for somebody waits.
    void hurry() { may_write_ = bytes_; }

    /// After a step, on all ranks: `agreed` is the sum of votes() before it. Returns true once the
    /// checkpoint is there. Collective only where a rank failed. Errors: see above.
    bool advance(const SaveVotes& agreed);

    /// Collective. Waits until the checkpoint is there. Errors: see above.
    void finish();

  private:
    enum class Stage : int { preparing, writing, committing, done, ended };
    struct Abandoned {};

    static Stage after(Stage stage) { return static_cast<Stage>(static_cast<int>(stage) + 1); }
    void work();
    void work_in(Stage stage);
    void copy();
    void prepare() const;
    void write();
    void commit();
    void pass(Stage next);
    void allow(Stage next);
    void rest_at(std::uint64_t bytes);
    void next_stage();
    bool works_in(Stage stage) const { return rank_ == 0 || stage == Stage::writing; }
    void wait_for_own() const;
    void give_sign();
    void mark_phase() const;
    std::filesystem::path list_of(int rank) const;
    FileAccess access() const { return threads_ ? FileAccess::direct : FileAccess::cached; }

    const Communicator ranks_;
    const int rank_, size_;
    const CheckpointPlace place_;
    CheckpointPart part_;
    SaveThreads* const threads_;
    const std::filesystem::path unfinished_;
    Stage stage_ = Stage::preparing;  ///< of all ranks; the training thread's

    std::atomic<bool> is_copied_ = false;
    std::atomic<Stage> reached_ = Stage::preparing;  ///< by the writer; ended: it failed
    std::atomic<Stage> allowed_ = Stage::preparing;  ///< to the writer; ended: it is abandoned
    std::atomic<int> signs_ = 0;                     ///< by the writer, of each part and stage
    std::atomic<std::uint64_t> may_write_ = 0;       ///< bytes, up to which the writer may go on
    std::uint64_t bytes_ = 0;                        ///< of this rank's shard
    double busy_s_ = 0;                              ///< of both threads, before reached_ changes
    double rested_s_ = 0;                            ///< of the writer, likewise
    std::optional<Error> failure_;                   ///< of the writer, before it has ended
};

/// Collective. Finds the newest whole checkpoint below `root`, or that of `step` alone, fills
/// `pieces` from it and returns its state; nothing if there is none. Damaged checkpoints are
/// skipped with a warning. Errors: E303 all damaged, if no `step` is given; E304 other tensors than
/// `tensors`, E305 format.
std::optional<CheckpointState> load_checkpoint(const Communicator& ranks,
                                               const std::filesystem::path& root,
                                               std::span<const TensorMeta> tensors,
                                               std::span<const TensorPiece> pieces,
                                               std::optional<std::int64_t> step = {});

}  // namespace lockstep
