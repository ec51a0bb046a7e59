// SPDX-License-Identifier: Apache-2.0
// Everything a training run holds, in the order in which it is set up and torn down.
#pragma once

#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/observe/run_directory.hpp"
#include "lockstep/train/checkpoint.hpp"
#include "lockstep/train/optimizer.hpp"
#include "lockstep/train/settings.hpp"

#include "loop/data_feed.hpp"
#include "loop/evaluate.hpp"
#include "loop/flight.hpp"
#include "replica/replica.hpp"
#include "schedule/train_step.hpp"
#include "task/input.hpp"

#include <memory>
#include <optional>

namespace lockstep {

/// How far the run is: what a checkpoint keeps besides tensors.
struct JobProgress {
    std::int64_t step = 0;
    std::int64_t epoch = 0;  ///< finished epochs
    StreamPosition position;
    double last_accuracy = -1;
};

/// The run directory as this rank sees it: rank 0 holds it, the others know its paths.
struct RunAccess {
    std::optional<RunDirectory> directory;  ///< rank 0 only
    RunPaths paths;
    std::int64_t incarnation = 1;
};

/// Collective to make: checks everything that can be checked, then takes the run directory. Errors
/// leave no half-made run behind.
struct Job {
    Job(const TrainSettings& given, const Communicator& ranks);

    /// Collective. Opens the log, shows the rank table, and fills the members from the exchange on
    /// from the newest checkpoint or from initial weights.
    void prepare();

    Communicator ranks;
    TrainSettings settings;  ///< with V and instruction set filled in
    const NodeFacts node = read_node_facts();
    std::shared_ptr<const DatasetIndex> data, test_data;
    RunAccess run;
    BitContract contract;                       ///< deciding settings on rank 0 only
    std::optional<EarlyNodeWatch> early_watch;  ///< until `flight` watches
    PhaseClock clock;
    CpuShare cpus;  ///< of this rank

    std::int64_t steps_per_epoch = 0, total_steps = 0;
    std::unique_ptr<TreePlan> plan;
    std::unique_ptr<Task> task;
    std::unique_ptr<InputReader> input;
    std::unique_ptr<Optimizer> optimizer;  ///< until the replica has it
    std::unique_ptr<Model> model;          ///< likewise
    std::vector<std::size_t> order;        ///< in which backward finishes its parameters
    std::unique_ptr<Flight> flight;        ///< outlives the replica, whose exchange it records
    std::unique_ptr<Replica> replica;
    std::unique_ptr<TrainStep> step;
    std::unique_ptr<Evaluator> evaluator;
    JobProgress progress;
    std::unique_ptr<DataFeed> feed;
    std::unique_ptr<BatchStream> stream;
    std::optional<LedgerWriter> ledger;  ///< with --ledger

  private:
    void open_data();
    void settle_contract();
    void settle_arithmetic();
    void open_run();
    void introduce();
    void start_flight();
    void build_model();
    void build_replica();
    void restore();
    void start_ledger();
};

}  // namespace lockstep
