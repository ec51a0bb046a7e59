// SPDX-License-Identifier: Apache-2.0
/// @file
/// The summary of a job's use of its resources, as seff prints it, but correct for several nodes
/// and with reasons.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/link_times.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/step_budget.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// All steps of a start in a few stretches of equally many: the same ones on all ranks, and small
/// enough to be sent to one of them.
class StepStretches {
  public:
    static constexpr std::size_t most = 32;  ///< stretches

    /// The next step, or another part of the same one. One thread.
    void add(const StepBudget& step);

    /// Each with its number, from 1, as StepBudget::step.
    const std::vector<StepBudget>& all() const { return stretches_; }

    /// How many were added.
    std::int64_t steps() const { return last_ - first_ + 1; }

  private:
    std::vector<StepBudget> stretches_;
    std::int64_t first_ = 1, last_ = 0;
    std::int64_t width_ = 1;  ///< steps of a stretch
};

/// What a rank used and did from the begin of its start on.
struct RankUse {
    int rank = 0;
    std::string host;
    double wall_s = 0;
    double cpu_s = 0;       ///< of all its threads, the system's part included
    double coreless_s = 0;  ///< that its first thread could have run, but others had its cores
    double cores = 0;       ///< that it may use; those of several ranks by its share
    int threads = 1;        ///< that compute
    std::uint64_t peak_bytes = 0;         ///< resident
    std::uint64_t shared_bytes = 0;       ///< of those, what is other ranks' as well
    std::uint64_t limit_bytes = 0;        ///< of the node's memory
    std::string limit_of;                 ///< whose limit that is: "control group", "SLURM", "node"
    bool is_on_gpu = false;               ///< computes there
    int leaves = 0;                       ///< of each step
    std::string data_bound;               ///< as DataReport::bound; "": batches did not wait
    bool has_resident_data = false;       ///< its data are in memory
    std::int64_t saves = 0;               ///< of this start
    std::int64_t steps = 0;               ///< of this start
    std::vector<StepBudget> stretches{};  ///< StepStretches
    std::vector<LinkTimes> links{};       ///< StartSums::links
};
void describe(Record& record, RankUse& use);  ///< as it is sent

/// Of all ranks together.
struct JobSummary {
    static constexpr std::string_view name = "job";  ///< in a log
    int ranks = 0, nodes = 0;
    std::int64_t steps = 0;
    double wall_s = 0, cpu_s = 0, cores = 0;
    int largest_rank = 0;                ///< the one with the most memory
    std::uint64_t rank_peak_bytes = 0;   ///< of that
    std::string largest_node;            ///< the one nearest to its limit
    std::uint64_t node_peak_bytes = 0;   ///< of that, what ranks share counted once
    std::uint64_t node_limit_bytes = 0;  ///< of that
    std::string node_limit_of;           ///< RankUse::limit_of
    PhaseSeconds phases{};               ///< of a rank on average
    double efficiency = 0;               ///< share of that in which ranks compute
    std::string why;                     ///< what the rest is lost to; "": nothing stands out
    std::string advice;                  ///< what to try then
};
void describe(Record& record, JobSummary& summary);  ///< as logs have it

/// `ranks`: all of a job, in order; at least one.
JobSummary summary_of(std::span<const RankUse> ranks);

/// Up to seven lines. Without steps: "".
std::string summary_text(const JobSummary& summary);

}  // namespace lockstep
