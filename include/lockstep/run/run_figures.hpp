// SPDX-License-Identifier: Apache-2.0
/// @file
/// A run's speed and curves, read from its files, for `report`, `compare` and `scale`.
#pragma once

#include "lockstep/run/events.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/step_budget.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// One rank of one start.
struct RankFigures {
    RankLogFacts facts{};               ///< its number, node and clock
    std::vector<StepBudget> steps{};    ///< the newest that it has kept, by its own clock
    std::string damage{};               ///< the reason why they could not be read; "": they could
    std::optional<PlaceEvent> place{};  ///< its cores; nothing in logs of earlier versions
    std::vector<LinkTimes> links{};     ///< StartSums::links
    std::string data_bound{};           ///< what_bound() of its newest reports
};

/// The data of one run, with details of one start.
struct RunFigures {
    fs::path root;
    RunRecord record;                 ///< settings with their origins, contract, versions
    std::int64_t incarnation = 0;     ///< the start of `ranks`; 0: none has logs
    std::vector<RankFigures> ranks;   ///< by rank
    std::vector<StepsEvent> reports;  ///< metrics.jsonl, each step once, of all starts
    std::vector<EvaluationMetrics> evaluations;  ///< from metrics.jsonl, too
};

/// Reads start `incarnation`; 0: the newest that has kept steps, else the newest. Errors: E201,
/// E222 of run.json.
RunFigures read_run_figures(const fs::path& root, std::int64_t incarnation = 0);

/// Reads the same without the growing metrics.jsonl: `reports` and `evaluations` are empty.
RunFigures read_rank_figures(const fs::path& root, std::int64_t incarnation = 0);

/// Returns the stage that batches waited for longest, as DataReport::bound; "" if none.
std::string what_bound(std::span<const StepsEvent> reports);

/// The average times of steps. The first step of a start, which warms up caches, is left out if
/// there are others.
struct MeanStep {
    std::int64_t steps = 0;  ///< number of averaged steps; 0: unknown
    PhaseSeconds phases{};   ///< times of one step; they sum to its wall time
    double wall_s() const { return phases.sum(); }  ///< of one step
};

/// Returns the mean of one rank's steps.
MeanStep mean_step(const RankFigures& rank);

/// Returns the mean over all ranks. Each step counts once, because its wall time is the same on
/// every rank.
MeanStep mean_step(const RunFigures& run);

}  // namespace lockstep
