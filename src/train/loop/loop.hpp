// SPDX-License-Identifier: Apache-2.0
// The training loop, and what it works with.
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

/// How far the run is: what a checkpoint keeps besides tensors.
struct JobProgress {
    std::int64_t step = 0;
    std::int64_t epoch = 0;    ///< finished epochs
    std::int64_t updates = 0;  ///< of those steps, in the weights as they are
    StreamPosition position;
    EvaluationRecord evaluated;
    BestEvaluation best;
    LossScale loss_scale;
    int skipped_in_row = 0;  ///< steps, of this start
};

/// The run directory as this rank sees it: rank 0 holds it, the others know its paths.
struct RunAccess {
    std::optional<RunDirectory> directory;  ///< rank 0 only
    RunPaths paths;
    std::int64_t incarnation = 1;
};

/// Borrowed from a Job.
struct LoopParts {
    const TrainSettings& settings;
    const Communicator& world;
    const DatasetIndex& data;  ///< that `stream` reads
    RunLength length;
    RunAccess& run;
    JobProgress& progress;
    StepStretches& stretches;       ///< all steps of this start
    std::vector<LinkTimes>& links;  ///< of this start
    PhaseClock& clock;
    FlightRecorder& recorder;
    BatchStream& stream;
    SampleFeed& feed;  ///< of `stream`
    TrainStep& step;
    Replica& replica;
    Evaluator* evaluator;  ///< null without test data
    LedgerWriter* ledger;  ///< null without --ledger
    /// Collective. Errors: E251 if the training data's files were changed.
    std::function<void()> check_data;
    std::function<void()> save;  ///< Collective. Writes a checkpoint, after check_data().
    /// Collective. Takes weights, buffers and optimizer state from the last checkpoint that was due
    /// by steps or epochs; the data and the step's number go on. Errors: E701 if there is none.
    std::function<void()> roll_back;
    /// Collective. After the first step of this start.
    std::function<void()> after_first_step;
};

/// Collective. Trains to the end of the run, or until a signal asked any rank to stop.
TrainEnd run_loop(const LoopParts& parts);

}  // namespace lockstep
