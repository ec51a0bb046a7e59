// SPDX-License-Identifier: Apache-2.0
// The resources that a job used, for its last lines.
#include "lockstep/cluster/job_limits.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/memory.hpp"

#include "loop/job.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>

#include <sys/resource.h>

namespace lockstep {
namespace {

double seconds_of(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

double trained_s(const StepStretches& stretches) {
    const auto& all = stretches.all();
    return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, const StepBudget& stretch) {
        return sum + stretch.wall_s();
    });
}

}  // namespace

// Returns the time of all threads of this process so far.
double Job::processor_s() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    return seconds_of(used.ru_utime) + seconds_of(used.ru_stime);
}

// Returns the time in which this process's first thread was ready to run and had no core; 0 if the
// kernel does not tell (CONFIG_SCHED_INFO).
double Job::coreless_s() {
    double computed_ns = 0, coreless_ns = 0;
    std::ifstream("/proc/self/schedstat") >> computed_ns >> coreless_ns;
    return 1e-9 * coreless_ns;
}

RankUse Job::use() const {
    const MemoryUse memory = memory_use();
    const UsableMemory limit = memory_limit(node_, Environment());
    const std::uint64_t own_bytes = proportional_memory_bytes();
    const StreamStats stats = stream_->stats();
    const double trained = trained_s(stretches_);
    return {.rank = mesh_.world.rank(),
            .host = node_.host,
            .wall_s = now_s() - began_s_,
            .cpu_s = processor_s() - processor_began_s_,
            .coreless_s = coreless_s() - coreless_began_s_,
            .cores = cores_,
            .threads = settings_.threads,
            .peak_bytes = memory.peak_resident_bytes,
            .shared_bytes = memory.resident_bytes - std::min(own_bytes, memory.resident_bytes),
            .limit_bytes = limit.bytes,
            .limit_of = limit.set_by,
            .is_on_gpu = gpu_ != nullptr,
            .leaves = leaves().size(),
            .data_bound = std::string(is_input_bound(stats, trained) ? binding_stage(stats, trained)
                                                                     : std::string_view()),
            .has_resident_data = feed_->is_resident(),
            .saves = saves_,
            .steps = stretches_.steps(),
            .stretches = stretches_.all(),
            .links = links_};
}

std::string Job::sum_up() const {
    std::vector<RankUse> ranks;
    for (const std::string& text : mesh_.world.gather(json_of_record(use()).dump()))
        ranks.push_back(record_from_json<RankUse>(parse_json(text, "rank's use"), "rank's use"));
    if (ranks.empty() || ranks.front().steps == 0) return "";
    const JobSummary summary = summary_of(ranks);
    log_event(summary);
    return summary_text(summary);
}

}  // namespace lockstep
