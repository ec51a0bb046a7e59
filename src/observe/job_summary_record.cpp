// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/observe/job_summary.hpp"

#include "phases_record.hpp"

namespace lockstep {
namespace {

/// A stretch as it is sent: many ranks send theirs to one.
std::vector<double> numbers_of(const StepBudget& stretch) {
    std::vector<double> numbers{static_cast<double>(stretch.step)};
    numbers.insert(numbers.end(), stretch.phases.begin(), stretch.phases.end());
    return numbers;
}

StepBudget stretch_of(const std::vector<double>& numbers) {
    StepBudget stretch;
    expect(numbers.size() == stretch.phases.size() + 1, "ranks know the same phases");
    stretch.step = static_cast<std::int64_t>(numbers.front());
    std::copy(numbers.begin() + 1, numbers.end(), stretch.phases.begin());
    return stretch;
}

}  // namespace

void describe(Record& record, RankUse& use) {
    record.field("rank", use.rank);
    record.field("host", use.host);
    record.field("wall_s", use.wall_s);
    record.field("cpu_s", use.cpu_s);
    record.field("coreless_s", use.coreless_s);
    record.field("cores", use.cores);
    record.field("threads", use.threads);
    record.field("peak_bytes", use.peak_bytes);
    record.field("shared_bytes", use.shared_bytes);
    record.field("limit_bytes", use.limit_bytes);
    record.field("limit_of", use.limit_of);
    record.field("is_on_gpu", use.is_on_gpu);
    record.field("leaves", use.leaves);
    record.field("data_bound", use.data_bound);
    record.field("has_resident_data", use.has_resident_data);
    record.field("saves", use.saves);
    record.field("steps", use.steps);
    std::vector<std::vector<double>> stretches;
    for (const StepBudget& stretch : use.stretches) stretches.push_back(numbers_of(stretch));
    record.field("stretches", stretches);
    record.field("links", use.links);
    if (!record.is_reading()) return;
    use.stretches.clear();
    for (const std::vector<double>& numbers : stretches)
        use.stretches.push_back(stretch_of(numbers));
}

void describe(Record& record, JobSummary& summary) {
    record.field("ranks", summary.ranks);
    record.field("nodes", summary.nodes);
    record.field("steps", summary.steps);
    record.field("wall_s", summary.wall_s);
    record.field("cpu_s", summary.cpu_s);
    record.field("cores", summary.cores);
    record.field("largest_rank", summary.largest_rank);
    record.field("rank_peak_bytes", summary.rank_peak_bytes);
    record.field("largest_node", summary.largest_node);
    record.field("node_peak_bytes", summary.node_peak_bytes);
    record.field("node_limit_bytes", summary.node_limit_bytes);
    record.field("node_limit_of", summary.node_limit_of);
    PhasesByName phases{&summary.phases};
    record.field("phases", phases);
    record.field("efficiency", summary.efficiency);
    record.field("why", summary.why);
    record.field("advice", summary.advice);
}

}  // namespace lockstep
