// SPDX-License-Identifier: Apache-2.0
// The training loop and its parts: the contract that ranks agree on before a run is made for them,
// what computes, what a rank holds of the run on disk, and how far the run is.
#pragma once

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/instruction_set.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/train/checkpoint.hpp"

#include "checkpoint/initial_weights.hpp"
#include "loop/inputs.hpp"
#include "model/model.hpp"
#include "replica/gpu.hpp"
#include "replica/optimizer.hpp"
#include "replica/replica.hpp"
#include "schedule/train_step.hpp"
#include "task/input.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

struct LoopParts;

/// Collective. agree() where LibTorch computes: what it throws has a name of ours.
template <class Work>
void agree_on_torch(const Communicator& ranks, Work&& work) {
    agree(ranks, [&] { with_known_errors(work); });
}

/// What decides the run's bits.
struct Contract {
    RunAge age() const { return recorded.empty() ? RunAge::created : RunAge::resumed; }

    Json recorded;  ///< deciding settings of the run that is there; empty: none is
    InitialWeights weights;
    InstructionSet most_useful = InstructionSet::basic;  ///< before ranks agreed on one
    RunLength length;
    std::optional<TreePlan> plan;
    BitContract bits;  ///< deciding settings on rank 0 only
};

/// Collective. What the run has already, and the instruction set: from here on LibTorch may
/// compute. V, length and plan are not settled yet. Errors: those of check_normalises(),
/// choose_task(), settle_initial_weights() and settle_arithmetic().
Contract settle_contract(Start& start, const Inputs& inputs);

/// Collective. V, where nobody said it, and what follows from it: length and plan. Leaves the model
/// as it was. Errors: E106 where a step does not divide into leaves, E215 where samples are too
/// few, E217; those of check_effects().
void cut_steps(Start& start,
               const Inputs& inputs,
               Contract& contract,
               Model& model,
               const Task& task,
               const ModelShape& shape);

/// Warns where `weights` that learned with other means and deviations get those of `data`.
void warn_of_other_statistics(Start& start,
                              const DatasetIndex& data,
                              const InitialWeights& weights);

/// Samples of which an output of the model is NaN.
struct NanOutputs {
    std::int64_t count = 0;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();  ///< least number of them
};

/// Exact evaluation: every sample once, in eval mode, without gradients. Keeps a data set open for
/// repeated evaluation, its first batches read ahead.
class Evaluator {
  public:
    /// `kernels`: those of the models' GPU, see make_feed(). Borrows all.
    Evaluator(std::shared_ptr<const DatasetIndex> index,
              const DatasetIndex& trained,
              const Communicator& ranks,
              LeafRange leaves,
              const TrainSettings& settings,
              const Task& task,
              const SamplePart& part = {},
              const InputKernels* kernels = nullptr);

    /// Collective. Evaluates all samples of the part, with the same bits on all ranks and for any
    /// number of them. The model returns to training mode afterwards. Errors: E251. Waiting for the
    /// other ranks counts as `clock`'s Phase::wait. A loss that is not finite gives a warning,
    /// which names the sample if one is the cause.
    Evaluation run(Model& model, PhaseClock& clock);

    /// Collective. Checks that files without hashes have not changed. Errors: E251.
    void check_files() const;

    /// `sink` receives what `form` makes of the model's outputs, f32 [n, ...] on the host, for each
    /// sample of this rank's leaves; targets need not exist. Returns the samples of this rank whose
    /// outputs have a NaN before `form`.
    using OutputForming = std::function<at::Tensor(const at::Tensor& outputs)>;
    using OutputSink = std::function<void(std::uint64_t sample, std::span<const std::byte> values)>;
    NanOutputs for_each_output(Model& model, const OutputForming& form, const OutputSink& sink);

  private:
    std::int64_t steps() const { return (samples_ + batch_ - 1) / batch_; }
    std::int64_t own_steps() const { return stream_ ? steps() : 0; }
    std::uint64_t samples_after(std::int64_t step) const;
    void add(SampleSums& all, Model& model, const Batch& batch, std::int64_t step);
    TaskSums sums_of_leaves(Model& model);
    std::string blame();

    std::shared_ptr<const DatasetIndex> index_;
    const Task& task_;
    Communicator ranks_;
    std::string inputs_;
    std::optional<std::string> blamed_;  ///< result of blame(), which reads all samples
    InputReader input_;
    FileWatch watch_;
    int virtual_ranks_;
    std::int64_t samples_;               ///< samples of the part
    std::int64_t batch_;                 ///< samples of all leaves in one pass
    std::optional<BatchStream> stream_;  ///< nothing: this rank has no leaves
    std::unique_ptr<SampleFeed> feed_;   ///< feed of `stream_`
};

/// In the order in which its parts are made: each borrows from those before it.
struct Engine {
    at::Device device() const { return gpu ? gpu->device() : at::Device(at::kCPU); }

    /// Null: inputs are prepared on the host.
    const InputKernels* kernels() const { return gpu ? &gpu->input_kernels() : nullptr; }

    std::unique_ptr<Gpu> gpu;  ///< null: ranks compute on CPUs
    std::unique_ptr<Task> task;
    std::unique_ptr<InputReader> input;
    std::unique_ptr<Model> model;      ///< until the replica has it
    std::vector<double> rate_factors;  ///< of its parameters
    std::vector<std::size_t> order;    ///< in which backward finishes its parameters
    std::unique_ptr<Replica> replica;  ///< from start_engine() on, as what follows
    std::unique_ptr<TrainStep> step;
    std::unique_ptr<Evaluator> evaluator;  ///< null without test data
};

/// Collective. The model, its task and its device, and with them the rest of `contract`: V and the
/// canary. Checks all that can be wrong with them before a run is made.
Engine make_engine(Start& start, Inputs& inputs, Contract& contract);

/// Collective, once the run is recorded. Replica, step and evaluator, with the initial weights.
void start_engine(const LoopParts& parts);

/// Collective, between steps. On made-up samples each rank tries which ways to compute its leaves
/// give the bits of computing them one by one, and what they cost. Errors: E103 for a way that was
/// asked for and does not.
void rehearse(const LoopParts& parts);

/// What this rank has of its node.
struct RankShare {
    CpuShare cpus;
    double cores = 0;                ///< see core_share()
    std::uint64_t memory_bytes = 0;  ///< of its node's
    int ranks_here = 1;              ///< number of ranks on its node
};

class EarlyFlight;
class Flight;

/// Rank 0 holds the directory, the others know its paths.
struct RunHold {
    /// Collective. From here on a rank that hangs or dies is named.
    explicit RunHold(const Start& start);
    ~RunHold();

    FlightRecorder& recorder() const;  ///< after introduce()

    std::optional<RunDirectory> directory;  ///< rank 0 only
    RunPaths paths;
    std::int64_t incarnation = 1;
    PhaseClock clock;
    RankShare share;                 ///< after introduce()
    std::unique_ptr<Flight> flight;  ///< likewise; outlives the replica, whose exchange it records
    std::unique_ptr<EarlyFlight> early;  ///< until `flight` watches
};

/// Collective. Looks at the data's files, and takes the run directory. Errors leave no half-made
/// run behind: E306, those of check_recorded() and of RunDirectory.
void take_run(RunHold& run, Start& start, Inputs& inputs, Contract& contract);

/// Collective. Opens the log, shows the rank table and what the run is about, and watches.
void introduce(const LoopParts& parts);

/// Returns what state.json says of the run as it is.
RunState state_of_run(const LoopParts& parts,
                      RunPhase phase,
                      std::string reason,
                      ExitCode exit = ExitCode::complete);

/// Rank 0 writes that into state.json. No save is in flight.
void write_state(const LoopParts& parts, RunPhase phase, std::string reason, ExitCode exit);

/// For who reads the run afterwards: this rank ends with `error`, alone or with all others.
void note_failure(const LoopParts& parts, const Error& error);

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
    Saves& operator=(Saves&&) = delete;

    const LastSave& last() const { return last_; }

    /// Returns true if the clock says that a save is due. For rank 0.
    bool is_time() const { return !is_in_flight() && has_clock_passed(); }

    /// Returns this rank's votes for the next step.
    SaveVotes votes() const { return is_in_flight() ? parts_.course.save->votes() : SaveVotes(); }

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
    bool is_in_flight() const { return parts_.course.save != nullptr; }
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
    const TrainSettings& settings_;
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

/// Collective. Trains to the end of the run, or until a signal asks any rank to stop.
TrainEnd run_loop(const LoopParts& parts);

}  // namespace lockstep
