// SPDX-License-Identifier: Apache-2.0
// How far a run is: the data to come, the steps done, and the checkpoints between them.
#pragma once

#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/ledger.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/job_summary.hpp"

#include "loop/data_feed.hpp"
#include "task/sample_feed.hpp"

#include <cstdint>
#include <memory>
#include <optional>
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
    int skipped_in_row = 0;  ///< steps, of this start
};

struct Course {
    explicit Course(const TrainSettings& settings) {
        if (settings.precision == Precision::fp16) progress.loss_scale.factor = settings.loss_scale;
    }

    JobProgress progress;
    StepStretches stretches;                     ///< all steps of this start
    std::vector<LinkTimes> links;                ///< likewise; see StartSums
    std::int64_t saves = 0;                      ///< likewise
    std::optional<std::int64_t> rolled_back_to;  ///< updates after the last roll_back()
    std::unique_ptr<DataFeed> data;              ///< from load_data() on
    std::unique_ptr<BatchStream> stream;         ///< from set_out() on, as what follows
    std::unique_ptr<SampleFeed> feed;            ///< of `stream`
    std::optional<LedgerWriter> ledger;          ///< with --ledger
};

/// Collective. Errors: those of DataFeed.
void load_data(const LoopParts& parts);

/// Collective. From the newest whole checkpoint, or from the initial weights.
void set_out(const LoopParts& parts);

/// Collective, after set_out(). A resumed run's ledger goes on in files of its own.
void begin_ledger(const LoopParts& parts);

/// Collective. Writes a checkpoint. Errors: E251 if the training data's files were changed.
void save(const LoopParts& parts);

/// Collective. Takes weights, buffers and optimizer state from the last checkpoint that was due by
/// steps or epochs; the data and the step's number go on. Errors: E701 if there is none.
void roll_back(const LoopParts& parts);

}  // namespace lockstep
