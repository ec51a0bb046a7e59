// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "lockstep/cluster/rank_row.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/job_summary.hpp"
#include "lockstep/run/memory.hpp"

#include "loop/loop.hpp"
#include "model/model.hpp"

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include <c10/util/Exception.h>
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

/// LibTorch's warnings go to the log, each text once: an LSTM on a GPU has one in every call.
class WarningLog final : public c10::WarningHandler {
  public:
    void process(const c10::Warning& warning) override {
        if (said_.insert(warning.msg()).second) once(Level::warn, "LibTorch: {}", warning.msg());
    }

  private:
    std::set<std::string> said_;
};

// Collective. What the job made of cores and memory, for people, on rank 0; "" on the others, and
// if this start trained nothing.
std::string sum_up(const LoopParts& parts) {
    std::vector<RankUse> ranks;
    for (const std::string& text : parts.start.ranks.gather(json_of_record(use_of(parts)).dump()))
        ranks.push_back(record_from_json<RankUse>(parse_json(text, "rank's use"), "rank's use"));
    if (ranks.empty() || ranks.front().steps == 0) return "";
    const JobSummary summary = summary_of(ranks);
    log_event(summary);
    return summary_text(summary);
}

// From a run that was taken to its end.
TrainResult train(const LoopParts& parts) {
    const JobProgress& at = parts.course.progress;
    introduce(parts);
    start_engine(parts);
    load_data(parts);
    set_out(parts);
    rehearse(parts);
    begin_ledger(parts);
    FlightRecorder& recorder = parts.run.recorder();
    recorder.mark_running();
    const std::int64_t total = parts.contract.length.total_steps;
    if (at.step >= total) once(Level::info, "the run is complete: {} of {} steps", at.step, total);
    TrainResult result;
    result.end = run_loop(parts);
    result.step = at.step;
    result.test = at.evaluated;
    result.parameter_hash = parts.engine.replica->hash();
    result.summary = sum_up(parts);
    recorder.mark_finished();
    return result;
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

TrainResult train_model(const TrainSettings& settings, const Communicator& ranks) {
    // A request during set-up is met after the first step.
    const SignalGuard signals(SignalGuard::SecondRequest::ends);
    const char* const needed = settings.data.empty() ? "data" : "run";
    agree(ranks, [&] {
        check(!settings.data.empty() && !settings.run.empty(), [&] {
            return Error(
                "E105", fmt::format("TrainSettings has no {}", needed), "", "set its path");
        });
    });
    WarningLog warnings;
    const c10::WarningUtils::WarningHandlerGuard of_this_thread(&warnings);
    Start start(settings, ranks);
    RunHold run(start);
    Inputs inputs = open_inputs(start);
    settle_statistics(start, inputs);
    Contract contract = settle_contract(start, inputs);
    Engine engine = make_engine(start, inputs, contract);
    take_run(run, start, inputs, contract);
    Course course(start.settings);
    const LoopParts parts{.start = start,
                          .inputs = inputs,
                          .contract = contract,
                          .run = run,
                          .engine = engine,
                          .course = course};
    const ForeignEnd only_ours([&](const Error& error) { note_failure(parts, error); });
    try {
        return with_known_errors([&] { return train(parts); });
    } catch (const Error& error) {
        note_failure(parts, error);
        throw;
    } catch (const std::exception& other) {
        note_failure(parts, as_error(other));
        throw;
    }
}

}  // namespace lockstep
