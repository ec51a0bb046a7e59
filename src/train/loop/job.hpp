// SPDX-License-Identifier: Apache-2.0
// All parts of a training run, in the order in which they are set up and torn down.
#pragma once

#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/job_summary.hpp"

#include "checkpoint/initial_weights.hpp"
#include "loop/data_feed.hpp"
#include "loop/evaluate.hpp"
#include "loop/flight.hpp"
#include "loop/loop.hpp"
#include "model/known_errors.hpp"
#include "replica/gpu.hpp"
#include "replica/model_layout.hpp"
#include "replica/optimizer.hpp"
#include "replica/replica.hpp"
#include "schedule/train_step.hpp"
#include "task/input.hpp"

#include <memory>
#include <optional>

namespace lockstep {

/// Communicators of this rank.
struct Mesh {
    Communicator world;  ///< all ranks of the run: agreement, watchdog, run directory, checkpoints
    Communicator data;  ///< ranks that divide a batch: leaves, sums of gradients, norms, evaluation
};

/// Collective. Calls agree() around LibTorch's work, whose exceptions become our errors.
template <class Work>
void agree_on_torch(const Communicator& ranks, Work&& work) {
    agree(ranks, [&] { with_known_errors(work); });
}

/// Collective constructor: makes all possible checks, then takes the run directory. After an error
/// no unfinished run is left.
class Job {
  public:
    Job(const TrainSettings& given, const Communicator& ranks);

    /// Collective. Opens the log, shows the rank table, and makes all parts that train, from the
    /// newest checkpoint or from initial weights.
    LoopParts prepare();

    /// Collective, after a training that did not fail. Returns the job's use of cores and memory,
    /// for people, on rank 0; "" on the others, and if this start trained nothing.
    std::string sum_up() const;

    /// Logs, for readers of the run, that this rank ends with `error`, alone or with all others.
    void note_failure(const Error& error);

  private:
    void note_failure_alone(const Error& error) const;
    void open_data();
    void split_data();
    void load_data();
    RunAge settle_contract();
    void make_model();
    void cut_steps(RunAge age);
    void prove_model();
    void settle_data();
    void open_run();
    void introduce();
    void start_flight();
    void reduce_precision(std::int64_t rows);
    std::unique_ptr<Exchange> make_sums(const ModelLayout& layout);
    fs::path nccl_log() const;
    void tell_of_network();
    void build_replica();
    void restore();
    void rehearse();
    void rehearse_graph();
    void start_ledger();
    static double processor_s();
    static double coreless_s();
    RankUse use() const;
    LeafRange leaves() const;
    at::Device device() const;
    const InputKernels* kernels() const;  ///< null: inputs are prepared on the host

    std::string data_digest() const;
    CheckpointState state() const;
    void save();
    void roll_back();
    void load_due(std::int64_t step);
    /// Starts the replica from the newest whole checkpoint, or from initial weights. Returns true
    /// if there was a checkpoint.
    bool load();

    Mesh mesh_;
    TrainSettings settings_;  ///< with V and instruction set filled in
    const NodeFacts node_ = read_node_facts();
    const double began_s_ = now_s(), processor_began_s_ = processor_s(),
                 coreless_began_s_ = coreless_s();
    std::shared_ptr<const DatasetIndex> data_, test_data_;
    std::uint64_t samples_ = 0;  ///< number to train on
    RunAccess run_;
    Json recorded_;  ///< deciding settings of the existing run; empty: none
    InitialWeights weights_;
    std::int64_t saves_ = 0;          ///< saves in this start
    std::vector<std::string> notes_;  ///< lines for the log
    Json digests_;                    ///< digests of data, and of files that settings name
    BitContract contract_;            ///< deciding settings on rank 0 only
    PhaseClock clock_;
    CpuShare cpus_;                   ///< CPUs of this rank
    double cores_ = 0;                ///< cores of this rank; see core_share()
    std::uint64_t memory_share_ = 0;  ///< this rank's part of its node's memory, in bytes
    InstructionSet most_useful_ = InstructionSet::basic;  ///< level before ranks agreed on one

    RunLength length_;
    std::unique_ptr<Gpu> gpu_;  ///< null: ranks compute on CPUs; outlives model and replica
    std::unique_ptr<TreePlan> plan_;
    std::unique_ptr<Task> task_;
    std::unique_ptr<InputReader> input_;
    std::unique_ptr<Optimizer> optimizer_;  ///< until the replica takes it
    std::unique_ptr<Model> model_;          ///< until the replica takes it
    std::vector<double> rate_factors_;      ///< factors of its parameters
    std::vector<std::size_t> order_;        ///< order in which backward finishes its parameters
    std::unique_ptr<Flight> flight_;        ///< outlives the replica, whose exchange it records
    std::optional<EarlyFlight> early_;      ///< until `flight_` watches
    std::unique_ptr<Replica> replica_;
    std::unique_ptr<TrainStep> step_;
    std::unique_ptr<Evaluator> evaluator_;
    JobProgress progress_;
    StepStretches stretches_;                     ///< all steps of this start
    std::vector<LinkTimes> links_;                ///< messages of this start; see StartSums
    std::optional<std::int64_t> rolled_back_to_;  ///< updates after the last roll_back()
    std::unique_ptr<DataFeed> feed_;
    std::unique_ptr<BatchStream> stream_;
    std::unique_ptr<SampleFeed> sample_feed_;  ///< feed of `stream_`
    std::optional<LedgerWriter> ledger_;       ///< with --ledger
};

}  // namespace lockstep
