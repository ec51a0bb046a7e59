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
    RankLogFacts facts{};               ///< which rank, on which node, and how its clock stands
    std::vector<StepBudget> steps{};    ///< the newest it has kept, by its own clock
    std::string damage{};               ///< not "": why they could not be read
    std::optional<PlaceEvent> place{};  ///< its cores; nothing in logs of earlier versions
    std::vector<LinkTimes> links{};     ///< StartSums::links
    std::string data_bound{};           ///< what_bound() of its newest reports
};

/// One run, of which one start is looked at closely.
struct RunFigures {
    fs::path root;
    RunRecord record;                 ///< settings with their origins, contract, versions
    std::int64_t incarnation = 0;     ///< the start that `ranks` are of; 0: none has logs
    std::vector<RankFigures> ranks;   ///< by rank
    std::vector<StepsEvent> reports;  ///< metrics.jsonl, each step once, of all starts
    std::vector<EvaluationMetrics> evaluations;  ///< from there, too
};

/// Of start `incarnation`; 0: the newest that has kept steps, else the newest. Errors: E201, E222
/// of run.json.
RunFigures read_run_figures(const fs::path& root, std::int64_t incarnation = 0);

/// The same without metrics.jsonl, which grows as long as a run: `reports` and `evaluations` are
/// empty.
RunFigures read_rank_figures(const fs::path& root, std::int64_t incarnation = 0);

/// What batches waited for longest, as DataReport::bound has it; "" if they did not wait.
std::string what_bound(std::span<const StepsEvent> reports);

/// The average times of steps, the first of a start (which warms caches up) left out where there
/// are others.
struct MeanStep {
    std::int64_t steps = 0;  ///< averaged over; 0: nothing is known
    PhaseSeconds phases{};   ///< of one step; they sum to its wall time
    double wall_s() const;   ///< all phases
};

/// Of one rank's steps.
MeanStep mean_step(const RankFigures& rank);

/// Over all ranks, each step counting once: a rank's wall time is every rank's.
MeanStep mean_step(const RunFigures& run);

}  // namespace lockstep
