// SPDX-License-Identifier: Apache-2.0
/// @file
/// The summary of a job's use of its resources, similar to seff but correct for several nodes and
/// with reasons.
#pragma once

#include "lockstep/core/clock.hpp"
#include "lockstep/core/link_times.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/run/memory.hpp"
#include "lockstep/run/step_budget.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// All steps of a start in a few stretches of equal numbers of steps: the same ones on all ranks,
/// and small enough to be sent to one of them.
class StepStretches {
  public:
    static constexpr std::size_t most = 32;  ///< number of stretches

    /// Adds the next step, or another part of the same one. One thread.
    void add(const StepBudget& step);

    /// Returns the stretches, each with its number, from 1, as StepBudget::step.
    const std::vector<StepBudget>& all() const { return stretches_; }

    /// Returns the number of steps added.
    std::int64_t steps() const { return last_ - first_ + 1; }

  private:
    std::vector<StepBudget> stretches_;
    std::int64_t first_ = 1, last_ = 0;
    std::int64_t width_ = 1;  ///< steps of a stretch
};

/// The use of resources by a rank since the begin of its start.
struct RankUse {
    int rank = 0;
    std::string host;
    double wall_s = 0;
    double cpu_s = 0;                ///< CPU time of all its threads, including system time
    double coreless_s = 0;           ///< time in which its first thread was ready but had no core
    double cores = 0;                ///< cores that it may use; shared cores count by its share
    int threads = 1;                 ///< compute threads
    std::uint64_t peak_bytes = 0;    ///< peak of resident memory
    std::uint64_t shared_bytes = 0;  ///< part of it that other ranks share
    ModelBytes model{};              ///< part of it: the model and what trains it
    std::uint64_t limit_bytes = 0;   ///< limit of the node's memory
    std::string limit_of;            ///< source of the limit: "control group", "SLURM", "node"
    bool is_on_gpu = false;          ///< computes on a GPU
    int leaves = 0;                  ///< leaves of each step
    std::string data_bound;          ///< as DataReport::bound; "": it did not wait for batches
    bool has_resident_data = false;  ///< its data are in memory
    std::int64_t saves = 0;          ///< number of saves in this start
    std::int64_t steps = 0;          ///< number of steps in this start
    std::vector<StepBudget> stretches{};  ///< StepStretches
    std::vector<LinkTimes> links{};       ///< StartSums::links
};
void describe(Record& record, RankUse& use);  ///< the form that ranks send

/// The summary of all ranks.
struct JobSummary {
    static constexpr std::string_view name = "job";  ///< name in a log
    int ranks = 0, nodes = 0;
    std::int64_t steps = 0;
    double wall_s = 0, cpu_s = 0, cores = 0;
    int largest_rank = 0;                ///< the rank with the most memory
    std::uint64_t rank_peak_bytes = 0;   ///< peak of that rank
    std::string largest_node;            ///< the node nearest to its limit
    std::uint64_t node_peak_bytes = 0;   ///< peak of that node; memory that ranks share counts once
    std::uint64_t node_limit_bytes = 0;  ///< limit of that node
    ModelBytes model{};                  ///< the most that any rank has of each
    std::uint64_t node_state_bytes = 0;  ///< the most of optimizer's state that any node has
    std::string node_limit_of;           ///< RankUse::limit_of
    PhaseSeconds phases{};               ///< average over the ranks
    double efficiency = 0;               ///< share of the time in which ranks compute
    std::string why;                     ///< the main cause of lost time; "": none stands out
    std::string advice;                  ///< what to try against it
};
void describe(Record& record, JobSummary& summary);  ///< the form in logs

/// Returns the summary. `ranks`: all ranks of a job, in order; at least one.
JobSummary summary_of(std::span<const RankUse> ranks);

/// Returns up to seven lines; "" without steps.
std::string summary_text(const JobSummary& summary);

}  // namespace lockstep
