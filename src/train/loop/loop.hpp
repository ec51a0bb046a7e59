// SPDX-License-Identifier: Apache-2.0
// The training loop and its parts.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/plan/run_length.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/flight_recorder.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/train/train.hpp"

#include "loop/evaluate.hpp"
#include "schedule/train_step.hpp"

#include <functional>
#include <optional>

namespace lockstep {

/// The progress of a run: the state in a checkpoint besides tensors.
struct JobProgress {
    std::int64_t step = 0;
    std::int64_t epoch = 0;    ///< finished epochs
    std::int64_t updates = 0;  ///< updates that the present weights have taken
    StreamPosition position;
    EvaluationRecord evaluated;
    BestEvaluation best;
    LossScale loss_scale;
    int skipped_in_row = 0;  ///< number of steps in this start
};

/// The run directory as this rank sees it: rank 0 owns it, the others know its paths.
struct RunAccess {
    std::optional<RunDirectory> directory;  ///< rank 0 only
    RunPaths paths;
    std::int64_t incarnation = 1;
};

/// Parts borrowed from a Job.
struct LoopParts {
    const TrainSettings& settings;
    const Communicator& world;
    const DatasetIndex& data;  ///< data of `stream`
    RunLength length;
    RunAccess& run;
    JobProgress& progress;
    StepStretches& stretches;       ///< all steps of this start
    std::vector<LinkTimes>& links;  ///< messages of this start
    PhaseClock& clock;
    FlightRecorder& recorder;
    BatchStream& stream;
    SampleFeed& feed;  ///< feed of `stream`
    TrainStep& step;
    Replica& replica;
    Evaluator* evaluator;  ///< null without test data
    LedgerWriter* ledger;  ///< null without --ledger
    /// Collective. Checks that the training data's files have not changed. Errors: E251.
    std::function<void()> check_data;
    std::function<void()> save;  ///< Collective. Writes a checkpoint, after check_data().
    /// Collective. Takes weights, buffers and optimizer state from the last checkpoint that was due
    /// by steps or epochs; the data and the step's number continue. Errors: E701 if there is none.
    std::function<void()> roll_back;
    /// Collective. Called after the first step of this start.
    std::function<void()> after_first_step;
};

/// Collective. Trains to the end of the run, or until a signal asks any rank to stop.
TrainEnd run_loop(const LoopParts& parts);

}  // namespace lockstep
