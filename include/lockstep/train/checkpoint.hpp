// SPDX-License-Identifier: Apache-2.0
/// @file
/// Checkpoints are written by any number of ranks and read by any other number.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
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
    std::function<void()> sync_others{};   ///< makes durable what else belongs to this state

    std::size_t changing_floats() const;  ///< number of floats of the changing pieces
};

/// How far ranks are with the present stage of a save. Votes of all ranks are added up.
struct SaveVotes {
    int done = 0;    ///< number of ranks that are ready for the next stage
    int failed = 0;  ///< number of ranks that failed
};

/// One save. Its stages: rank 0 prepares the folder, all ranks write their shards, rank 0 commits.
/// Each rank works on a thread of its own, which calls no MPI; the training thread moves all ranks
/// to the next stage, after a step whose votes say so, or in finish(). Commit order: temporary
/// shards, hashes, fsync, all ranks well, fencing, manifest, fsync, rename, fsync, `latest`,
/// retention. Errors (on all ranks): E701 non-finite values, E403, E405, E402, E408.
class CheckpointSave {
  public:
    /// Begins. overlapped: changing pieces are copied to `staging`, which has room for them; until
    /// is_copied() they must not change. The thread then has a low priority. blocking: pieces are
    /// written from their place; call finish() before they change.
    CheckpointSave(const Communicator& ranks,
                   CheckpointPlace place,
                   CheckpointPart part,
                   CheckpointMode mode,
                   std::span<float> staging = {});

    /// Abandons the save if it is not committed. Waits for the thread.
    ~CheckpointSave();
    CheckpointSave(const CheckpointSave&) = delete;
    CheckpointSave& operator=(const CheckpointSave&) = delete;

    /// Returns the state that is saved.
    const CheckpointState& state() const { return part_.state; }

    /// Returns true if the pieces may change.
    bool is_copied() const;

    /// Waits until they may.
    void wait_copied() const;

    /// Returns this rank's votes for the next step.
    SaveVotes votes() const;

    /// Collective, after a step: `agreed` is the sum of votes() before it. Returns true once the
    /// checkpoint is there. Errors: see above.
    bool advance(const SaveVotes& agreed);

    /// Collective. Waits until the checkpoint is there. Errors: see above.
    void finish();

  private:
    enum class Stage { preparing, writing, committing, done };
    struct Abandoned {};

    void work();
    void copy();
    void prepare() const;
    void write();
    void commit();
    void pass(Stage next);
    void next_stage();
    bool works_in(Stage stage) const { return rank_ == 0 || stage == Stage::writing; }
    void wait_for_own() const;

    const Communicator ranks_;
    const int rank_, size_;
    const CheckpointPlace place_;
    CheckpointPart part_;
    const CheckpointMode mode_;
    const std::span<float> staging_;
    const std::filesystem::path unfinished_;
    Stage stage_ = Stage::preparing;  ///< of all ranks; the training thread's
    std::string written_;             ///< list of this rank's pieces in its shard
    std::vector<std::string> lists_;  ///< those of all ranks, on rank 0

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    bool is_copied_ = false, is_abandoned_ = false;
    Stage reached_ = Stage::preparing;  ///< by the thread
    Stage allowed_ = Stage::preparing;  ///< to the thread
    std::optional<Error> failure_;      ///< of the thread
    std::thread thread_;                ///< last: it uses all of the above
};

/// Collective. Writes root/step-NNNNNN from the `pieces` of all ranks, which together cover
/// `tensors` exactly once, and waits for it. load_checkpoint() returns `state` again. Errors: those
/// of CheckpointSave.
void save_checkpoint(const Communicator& ranks,
                     const CheckpointPlace& place,
                     const CheckpointState& state,
                     std::span<const TensorMeta> tensors,
                     std::span<const TensorPiece> pieces);

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
