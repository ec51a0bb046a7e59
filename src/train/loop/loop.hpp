// SPDX-License-Identifier: Apache-2.0
// The training loop and its parts, and how far a run is: the data to come, the steps done, and the
// checkpoints between them.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "loop/data_feed.hpp"
#include "loop/engine.hpp"
#include "loop/inputs.hpp"
#include "loop/run_contract.hpp"
#include "loop/run_hold.hpp"
#include "task/sample_feed.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct LoopParts;

/// How far the run is: what a checkpoint keeps besides tensors.
struct JobProgress {
    std::int64_t step = 0;
    std::int64_t epoch = 0;    ///< finished epochs
    std::int64_t updates = 0;  ///< of those steps, in the weights as they are
    StreamPosition position;
    EvaluationRecord evaluated;
    BestEvaluation best;
    LossScale loss_scale;
    int skipped_in_row = 0;    ///< steps, of this start
    std::int64_t resumed = 0;  ///< step of the checkpoint with which it began; 0: none
};

struct Course {
    explicit Course(const TrainSettings& settings) {
        if (settings.precision == Precision::fp16) progress.loss_scale.factor = settings.loss_scale;
    }

    /// Call before an update.
    void wait_for_copy(PhaseClock& clock) const;

    JobProgress progress;
    StepStretches stretches;                     ///< all steps of this start
    std::vector<LinkTimes> links;                ///< likewise; see StartSums
    std::int64_t saves = 0;                      ///< likewise
    std::optional<std::int64_t> rolled_back_to;  ///< updates after the last roll_back()
    std::unique_ptr<DataFeed> data;              ///< from load_data() on
    std::unique_ptr<BatchStream> stream;         ///< from set_out() on, as what follows
    std::unique_ptr<SampleFeed> feed;            ///< of `stream`
    std::optional<LedgerWriter> ledger;          ///< with --ledger
    std::unique_ptr<CheckpointSave> save;        ///< in flight; null: none
};

/// Why a checkpoint is ordered.
enum class SaveReason {
    period,   ///< by steps or epochs
    request,  ///< a user's, or rank 0's clock; may be of a later step
    best,     ///< the weights of this step are to be kept
};

/// The newest committed checkpoint of this start, or where the start began.
struct LastSave {
    std::int64_t step = 0, epoch = 0;
    double time_s = 0;  ///< when it was committed, or when a newer one was ordered
};

/// Saves checkpoints, one at a time, as --checkpoint-mode says. Errors: those of CheckpointSave, on
/// all ranks; E251 if the training data's files were changed.
class Saves {
  public:
    /// `limit` gets the time that saves take. Both outlive this.
    Saves(const LoopParts& parts, TimeLimit& limit);

    /// Abandons the save in flight, whose threads go.
    ~Saves();
    Saves(const Saves&) = delete;
    Saves& operator=(const Saves&) = delete;

    const LastSave& last() const { return last_; }

    /// Returns true if the clock says that a save is due. For rank 0.
    bool is_time() const { return !is_in_flight() && has_clock_passed(); }

    /// Returns this rank's votes for the next step.
    SaveVotes votes() const;

    /// Collective, after each step, which took `wall_s`: `agreed` are the sums of the votes.
    void after_step(const SaveVotes& agreed, double wall_s);

    /// Collective. Saves the step just done. A period is left out while another save is in flight,
    /// and counted; a request waits for its turn.
    void order(SaveReason reason);

    /// Returns true if the save in flight answers the request `id`. For rank 0.
    bool answers(const std::string& id) const { return is_in_flight() && answered_ == id; }

    /// Returns true if order() was asked for a request that had to wait.
    bool has_request() const { return is_wanted_; }

    /// Collective. Waits for the save in flight, if any.
    void finish();

    /// Collective. Saves the step just done and waits for it.
    void now();

  private:
    bool is_in_flight() const;
    bool has_clock_passed() const;
    bool may_overlap() const;
    void begin(CheckpointMode mode);
    void choose_interval();
    double mtbf_s() const;
    bool can_overlap(const CheckpointPart& part);
    std::int64_t spread_of(const CheckpointPart& part) const;
    void note_committed();
    void leave_out();
    std::string request_to_save() const;

    const LoopParts& parts_;
    TimeLimit& limit_;
    CheckpointMode mode_;
    LastSave last_;
    std::int64_t steps_ = 0;                ///< of this start
    std::unique_ptr<SaveThreads> threads_;  ///< before the first overlapped save
    double ordered_s_ = 0;                  ///< when the save in flight was
    double begin_s_ = 0;                    ///< for how long it was ordered
    SaveCost cost_;                         ///< of this start's saves
    double interval_s_ = 0, told_s_ = 0;    ///< of --checkpoint-every auto; as last logged
    std::string answered_;                  ///< id of the request that it answers
    bool is_wanted_ = false;                ///< a request waits for its turn
    std::uint64_t left_out_ = 0;
};

/// Collective. Errors: those of DataFeed.
void load_data(const LoopParts& parts);

/// Collective. From the newest whole checkpoint, or from the initial weights.
void set_out(const LoopParts& parts);

/// Collective, after set_out(). A resumed run's ledger goes on in files of its own.
void begin_ledger(const LoopParts& parts);

/// Collective. Takes weights, buffers and optimizer state from the last checkpoint that was due by
/// steps or epochs; the data and the step's number go on. No save is in flight. Errors: E701 if
/// there is none.
void roll_back(const LoopParts& parts);

/// Borrowed. In the order in which they are made, but for `run`, which watches from the beginning
/// on and outlives the engine.
struct LoopParts {
    const Start& start;
    const Inputs& inputs;
    const Contract& contract;
    RunHold& run;
    Engine& engine;
    Course& course;
};

/// Collective. Trains to the end of the run, or until a signal asks any rank to stop.
TrainEnd run_loop(const LoopParts& parts);

}  // namespace lockstep
