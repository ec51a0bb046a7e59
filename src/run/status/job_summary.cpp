// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/job_summary.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/stragglers.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double busy_enough = 0.6;     // share of the cores' time
constexpr double least_told_s = 3;      // seconds of steps: less has no phase worth a change
constexpr double least_coreless = 0.1;  // share of a rank's time
constexpr double least_computed =
    0.6;  // share of the time in which a rank has something to compute

/// The meaning of a phase beyond `most` of the time.
struct Sign {
    Phase phase;
    double most;
    std::string_view why, advice;
};

/// Those that fit the job: on one node there is no network, data in memory are read once already,
/// and a save that was the only one can be no rarer.
std::vector<Sign> signs_of(const JobSummary& job, std::span<const RankUse> ranks) {
    const bool is_resident = ranks.front().has_resident_data, is_one_node = job.nodes == 1;
    std::vector<Sign> signs{
        {Phase::copy,
         0.1,
         "samples reach GPUs too slowly",
         "docs/gpu.md says what is copied, and when"},
        {Phase::comm,
         0.15,
         "sums of gradients are not hidden",
         "lockstep bench comm measures the links; larger batches need fewer sums"},
        {Phase::evaluate, 0.3, "evaluation takes long", "evaluate less often (--evaluate-every)"},
        {Phase::data,
         0.1,
         is_resident ? "batches come too slowly, though the data are in memory"
                     : "batches come too slowly",
         is_resident
             ? "more --io-threads gather them sooner if there are cores for them"
             : "lockstep bench io says what the storage gives; --data-mode resident reads once"},
        {Phase::wait,
         0.15,
         is_one_node ? "ranks wait for each other in turns"
                     : "ranks wait for each other in turns, or for the network",
         is_one_node
             ? "lockstep doctor looks for shared cores"
             : "lockstep doctor looks for shared cores, lockstep bench comm for slow links"}};
    if (ranks.front().saves > 1)
        signs.push_back(
            {Phase::checkpoint, 0.1, "saving takes long", "save less often (--checkpoint-every)"});
    return signs;
}

double share_of(const JobSummary& job, Phase phase) {
    const double total = job.phases.sum();
    return total > 0 ? job.phases[phase] / total : 0;
}

double cpu_share_of(const JobSummary& job) {
    const double given_s = job.cores * job.wall_s;
    return given_s > 0 ? job.cpu_s / given_s : 0;
}

/// One node's ranks.
struct NodeMemory {
    std::uint64_t peak_bytes = 0, limit_bytes = 0, state_bytes = 0;
    std::string limit_of;

    double fullness() const {
        return static_cast<double>(peak_bytes) /
               static_cast<double>(std::max<std::uint64_t>(limit_bytes, 1));
    }
};

void sum_up_memory(JobSummary& job, std::span<const RankUse> ranks) {
    std::map<std::string, NodeMemory> nodes;
    for (const RankUse& rank : ranks) {
        NodeMemory& node = nodes[rank.host];
        node.peak_bytes += rank.peak_bytes - std::min(rank.peak_bytes, rank.shared_bytes);
        node.limit_bytes = rank.limit_bytes;
        node.limit_of = rank.limit_of;
        node.state_bytes += rank.model.state;
        job.node_state_bytes = std::max(job.node_state_bytes, node.state_bytes);
        job.model = {std::max(job.model.parameters, rank.model.parameters),
                     std::max(job.model.gradients, rank.model.gradients),
                     std::max(job.model.state, rank.model.state)};
        if (rank.peak_bytes <= job.rank_peak_bytes) continue;
        job.rank_peak_bytes = rank.peak_bytes;
        job.largest_rank = rank.rank;
    }
    const auto& [host, node] = *std::ranges::max_element(
        nodes, {}, [](const auto& named) { return named.second.fullness(); });
    job.nodes = static_cast<int>(nodes.size());
    job.largest_node = host;
    job.node_peak_bytes = node.peak_bytes;
    job.node_limit_bytes = node.limit_bytes;
    job.node_limit_of = node.limit_of;
}

void sum_up_phases(JobSummary& job, std::span<const RankUse> ranks) {
    for (const RankUse& rank : ranks)
        for (const StepBudget& stretch : rank.stretches)
            for (std::size_t i = 0; i < job.phases.size(); ++i)
                job.phases[i] += stretch.phases[i] / static_cast<double>(ranks.size());
    job.efficiency = share_of(job, Phase::forward) + share_of(job, Phase::backward) +
                     share_of(job, Phase::update) + share_of(job, Phase::evaluate);
}

std::vector<RankSteps> steps_of(std::span<const RankUse> ranks) {
    std::vector<RankSteps> steps;
    for (const RankUse& rank : ranks)
        steps.push_back({.rank = rank.rank,
                         .host = rank.host,
                         .steps = rank.stretches,
                         .leaves = rank.leaves,
                         .data_bound = rank.data_bound,
                         .links = rank.links});
    return steps;
}

std::vector<Straggler> stragglers_of(const JobSummary& job, std::span<const RankSteps> ranks) {
    std::vector<Straggler> found = find_stragglers(ranks);
    const double step_s = job.phases.sum() / static_cast<double>(job.steps);
    for (Straggler& straggler : found) straggler.lost_s = straggler.share * step_s;
    erase_unsure(found);
    return found;
}

double coreless_share(const RankUse& rank) {
    return rank.wall_s > 0 ? rank.coreless_s / rank.wall_s : 0;
}

/// Somebody else's processes, or more ranks than cores, look like a slow rank, like ranks that wait
/// for each other and like cores with nothing to do.
bool blames_others(JobSummary& job, std::span<const RankUse> ranks) {
    const RankUse& rank = *std::ranges::max_element(ranks, {}, coreless_share);
    if (coreless_share(rank) < least_coreless) return false;
    job.why = fmt::format(
        "other processes used the cores of rank {} on {}: it was ready for {:.0f} % of the time, "
        "but had no core",
        rank.rank,
        rank.host,
        100 * coreless_share(rank));
    job.advice = fmt::format(
        "'top' on {} shows what else runs there; run again when that has ended, "
        "or with fewer ranks",
        rank.host);
    return true;
}

/// Advises on cores that compute too little, if there is something that would use them.
void suggest_ranks(JobSummary& job, std::span<const RankUse> ranks) {
    int virtual_ranks = 0;
    for (const RankUse& rank : ranks) virtual_ranks += rank.leaves;
    const double room = job.cores / ranks.front().threads;
    if (room < job.ranks + 1) return;
    job.why = "some cores are idle";
    const int more = std::min(static_cast<int>(room), virtual_ranks);
    job.advice =
        more > job.ranks
            ? fmt::format(
                  "more ranks: --np {}; the bits stay the same, for V is {}", more, virtual_ranks)
            : fmt::format(
                  "--threads, or ranks with a larger --virtual-ranks, of a new run: V is {} here",
                  virtual_ranks);
}

/// Ranks that are stopped, short of memory or held by a quota seem to compute: their phases go on,
/// and nobody else has their cores. A rank that computes uses one core at least.
bool blames_pauses(JobSummary& job) {
    const double computing_s = job.efficiency * job.phases.sum() * job.ranks;
    if (job.cpu_s >= least_computed * computing_s) return false;
    job.why = fmt::format("ranks used a core for only {:.0f} % of the time in which they computed",
                          100 * job.cpu_s / computing_s);
    job.advice =
        "lockstep doctor looks for quotas and memory; a rank that was stopped for a while or read "
        "its memory from disk looks so, too";
    return true;
}

void explain(JobSummary& job, std::span<const RankUse> ranks) {
    const double each_s = job.phases.sum();
    if (each_s < least_told_s) return;
    const std::vector<RankSteps> steps = steps_of(ranks);
    const std::vector<Straggler> stragglers = stragglers_of(job, steps);
    // Of the phases that take too long, the longest is chosen.
    const auto excess = [&](const Sign& sign) { return share_of(job, sign.phase) / sign.most; };
    const auto told_share = [&](const Sign& sign) {
        return excess(sign) >= 1 ? share_of(job, sign.phase) : 0;
    };
    const std::vector<Sign> signs = signs_of(job, ranks);
    const Sign& sign = *std::ranges::max_element(signs, {}, told_share);
    const bool is_idle = cpu_share_of(job) < busy_enough && !ranks.front().is_on_gpu;
    const bool has_slow_cores =
        !stragglers.empty() && stragglers.front().cause == StragglerCause::cores;
    const bool ranks_wait = stragglers.empty() && excess(sign) >= 1 && sign.phase == Phase::wait;
    const bool cores_wait = stragglers.empty() && excess(sign) < 1 && is_idle;
    if ((has_slow_cores || ranks_wait || cores_wait) && blames_others(job, ranks)) return;
    if (cores_wait && blames_pauses(job)) return;
    if (!stragglers.empty()) {
        job.why = stragglers_text(stragglers);
        job.advice = advice(stragglers.front());
    } else if (excess(sign) >= 1) {
        const bool may_be_links = sign.phase == Phase::comm || sign.phase == Phase::wait;
        job.why = fmt::format("{}: {:.0f} % of the time{}",
                              sign.why,
                              100 * share_of(job, sign.phase),
                              may_be_links ? link_rate_clause(steps) : "");
        job.advice = sign.advice;
    } else if (is_idle) {
        suggest_ranks(job, ranks);
    }
}

/// "backward 41 %, forward 22 %", the longest first.
std::string phases_line(const JobSummary& job) {
    std::vector<std::pair<double, Phase>> shares;
    for (std::size_t i = 0; i < job.phases.size(); ++i)
        shares.emplace_back(share_of(job, static_cast<Phase>(i)), static_cast<Phase>(i));
    std::ranges::stable_sort(shares, std::greater(), &std::pair<double, Phase>::first);
    std::string text;
    for (const auto& [share, phase] : shares)
        if (share >= 0.005)
            text += fmt::format(
                "{}{} {:.0f} %", text.empty() ? "" : ", ", phase_name(phase), 100 * share);
    return text;
}

std::string counted(int count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

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

void StepStretches::add(const StepBudget& step) {
    if (stretches_.empty()) first_ = step.step;
    last_ = std::max(last_, step.step);
    while ((step.step - first_) / width_ >= static_cast<std::int64_t>(most)) {
        std::vector<StepBudget> wider;
        for (const StepBudget& stretch : std::exchange(stretches_, {})) {
            const std::int64_t number = (stretch.step + 1) / 2;
            if (wider.empty() || wider.back().step != number) wider.push_back({.step = number});
            wider.back() += stretch;
        }
        stretches_ = std::move(wider);
        width_ *= 2;
    }
    const std::int64_t number = (step.step - first_) / width_ + 1;
    if (stretches_.empty() || stretches_.back().step != number)
        stretches_.push_back({.step = number});
    stretches_.back() += step;
}

JobSummary summary_of(std::span<const RankUse> ranks) {
    JobSummary job{.ranks = static_cast<int>(ranks.size()), .steps = ranks.front().steps};
    for (const RankUse& rank : ranks) {
        job.wall_s = std::max(job.wall_s, rank.wall_s);
        job.cpu_s += rank.cpu_s;
        job.cores += rank.cores;
    }
    sum_up_memory(job, ranks);
    if (job.steps == 0) return job;
    sum_up_phases(job, ranks);
    explain(job, ranks);
    return job;
}

std::string summary_text(const JobSummary& job) {
    if (job.steps == 0) return "";
    std::string text = fmt::format("cpu           {:.0f} % of {:.3g} core(s) for {} ({} on {})\n",
                                   100 * cpu_share_of(job),
                                   job.cores,
                                   duration_text(job.wall_s),
                                   counted(job.ranks, "rank"),
                                   counted(job.nodes, "node"));
    text += fmt::format("memory        {} at most (rank {}), {} on {} of {} ({})\n",
                        bytes_text(job.rank_peak_bytes),
                        job.largest_rank,
                        bytes_text(job.node_peak_bytes),
                        job.largest_node,
                        bytes_text(job.node_limit_bytes),
                        job.node_limit_of);
    if (job.model != ModelBytes())
        text += fmt::format(
            "model         {} for parameters, {} for gradients, {} for optimizer state at most; {} "
            "of state on a node\n",
            bytes_text(job.model.parameters),
            bytes_text(job.model.gradients),
            bytes_text(job.model.state),
            bytes_text(job.node_state_bytes));
    text += fmt::format("efficiency    {:.0f} % of the ranks' time in steps ({}) is computing\n",
                        100 * job.efficiency,
                        duration_text(job.phases.sum()));
    text += fmt::format("time          {}\n", phases_line(job));
    if (!job.why.empty()) text += fmt::format("why           {}\n", job.why);
    if (!job.advice.empty()) text += fmt::format("try           {}\n", job.advice);
    return text;
}

void describe(Record& record, RankUse& use) {
    LOCKSTEP_EACH(record.field, use.rank, use.host, use.wall_s, use.cpu_s);
    LOCKSTEP_EACH(record.field, use.coreless_s, use.cores, use.threads, use.peak_bytes);
    LOCKSTEP_EACH(record.field, use.shared_bytes, use.model, use.limit_bytes);
    LOCKSTEP_EACH(record.field, use.limit_of, use.is_on_gpu, use.leaves, use.data_bound);
    LOCKSTEP_EACH(record.field, use.has_resident_data, use.saves, use.steps);
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
    LOCKSTEP_EACH(record.field, summary.ranks, summary.nodes, summary.steps);
    LOCKSTEP_EACH(record.field, summary.wall_s, summary.cpu_s, summary.cores);
    LOCKSTEP_EACH(record.field, summary.largest_rank, summary.rank_peak_bytes);
    LOCKSTEP_EACH(record.field, summary.largest_node, summary.node_peak_bytes);
    LOCKSTEP_EACH(record.field, summary.node_limit_bytes, summary.node_limit_of);
    LOCKSTEP_EACH(record.later, summary.model, summary.node_state_bytes);
    LOCKSTEP_EACH(record.field, summary.phases, summary.efficiency, summary.why, summary.advice);
}

}  // namespace lockstep
