// SPDX-License-Identifier: Apache-2.0
// What a start begins with, and what it has used when it ends.
#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/memory.hpp"

#include "loop/inputs.hpp"
#include "loop/loop.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>

#include <fmt/format.h>
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

RankUse use_of(const LoopParts& parts) {
    const Start& start = parts.start;
    const Course& course = parts.course;
    const ProcessTimes now = process_times();
    const MemoryUse memory = memory_use();
    const UsableMemory limit = memory_limit(start.node, Environment());
    const std::uint64_t own_bytes = proportional_memory_bytes();
    const StreamStats stats = course.stream->stats();
    const double trained = trained_s(course.stretches);
    return {.rank = start.ranks.rank(),
            .host = start.node.host,
            .wall_s = now.wall_s - start.began.wall_s,
            .cpu_s = now.processor_s - start.began.processor_s,
            .coreless_s = now.coreless_s - start.began.coreless_s,
            .cores = parts.run.share.cores,
            .threads = start.settings.threads,
            .peak_bytes = memory.peak_resident_bytes,
            .shared_bytes = memory.resident_bytes - std::min(own_bytes, memory.resident_bytes),
            .model = parts.engine.replica->bytes(),
            .limit_bytes = limit.bytes,
            .limit_of = limit.set_by,
            .is_on_gpu = parts.engine.gpu != nullptr,
            .leaves = start.leaves().size(),
            .data_bound = std::string(is_input_bound(stats, trained) ? binding_stage(stats, trained)
                                                                     : std::string_view()),
            .has_resident_data = course.data->is_resident(),
            .saves = course.saves,
            .steps = course.stretches.steps(),
            .stretches = course.stretches.all(),
            .links = course.links};
}

// Collective. Errors: E605 where ranks have other settings; those of check_settings().
void check_same_settings(const Communicator& ranks, const TrainSettings& settings) {
    const Json mine = json_of(shared_settings(settings));
    const Json roots = parse_json(ranks.broadcast(mine.dump()), "settings of rank 0");
    agree(ranks, [&] {
        check_settings(settings);
        for (const auto& [name, value] : mine.items())
            check(value == roots.value(name, Json()), [&] {
                return Error(
                    "E605",
                    fmt::format("ranks have different settings: {} is {} here and {} on rank 0",
                                name,
                                value.dump(),
                                roots.value(name, Json()).dump()),
                    "environment variables and files can differ between nodes",
                    "give settings on the command line, or export them with mpirun -x");
            });
    });
}

}  // namespace

ProcessTimes process_times() {
    rusage used{};
    ::getrusage(RUSAGE_SELF, &used);
    // Kernels without CONFIG_SCHED_INFO do not say it.
    double computed_ns = 0, coreless_ns = 0;
    std::ifstream("/proc/self/schedstat") >> computed_ns >> coreless_ns;
    return {.wall_s = now_s(),
            .processor_s = seconds_of(used.ru_utime) + seconds_of(used.ru_stime),
            .coreless_s = 1e-9 * coreless_ns};
}

Start::Start(const TrainSettings& given, const Communicator& world)
    : ranks(world), settings(given), transform(given.transform) {
    settings.transform =
        agree(world, [&] { return TransformPipeline::parse(given.transform).text(); });
    check_same_settings(world, settings);
}

LeafRange Start::leaves() const {
    return leaves_of(ranks.rank(), ranks.size(), settings.virtual_ranks);
}

std::string sum_up(const LoopParts& parts) {
    std::vector<RankUse> ranks;
    for (const std::string& text : parts.start.ranks.gather(json_of_record(use_of(parts)).dump()))
        ranks.push_back(record_from_json<RankUse>(parse_json(text, "rank's use"), "rank's use"));
    if (ranks.empty() || ranks.front().steps == 0) return "";
    const JobSummary summary = summary_of(ranks);
    log_event(summary);
    return summary_text(summary);
}

}  // namespace lockstep
