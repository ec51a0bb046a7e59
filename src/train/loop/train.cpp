// SPDX-License-Identifier: Apache-2.0
// From settings to a trained run: what ranks agree on before a run is made for them, and the order
// of all that follows.
#include "lockstep/train/train.hpp"

#include "lockstep/core/foreign_end.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/signals.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/run/events.hpp"
#include "lockstep/run/memory.hpp"

#include "loop/loop.hpp"
#include "profile/operator_ledger.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"

#include <algorithm>
#include <bit>
#include <fstream>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <sys/resource.h>

namespace lockstep {
namespace {

// By the shapes of one forward pass. Whether V depends on it is decided by all ranks alike.
std::uint64_t products_of(Model& model, const ModelShape& shape) {
    constexpr std::int64_t rows = 2;  // batch norm has no statistics of one sample
    const KeptBuffers kept(model);
    const auto ledger = std::make_shared<OperatorLedger>(model);
    try {
        const NamedTensors inputs = blank_inputs(shape, rows);
        const OperatorWatch watch(ledger);
        static_cast<void>(outputs_of(model, inputs));
    } catch (const std::exception&) {
        return 0;  // the blank step says what is wrong
    }
    std::uint64_t flops = 0;
    for (const OperatorCost& cost : ledger->operators(1)) flops += cost.flops.value_or(0);
    return flops / 2 / rows;
}

ModelTraits traits_of(Model& model, const ModelShape& shape, const std::string& transform) {
    const auto is_of_batch_norm = [](const NamedTensor& buffer) {  // in any kind of model
        return std::string_view(buffer.name).ends_with("running_mean");
    };
    ModelTraits traits{.looks_across_samples =
                           std::ranges::any_of(model.buffers(), is_of_batch_norm) ||
                           TransformPipeline::parse(transform).mixes_labels() ||
                           !takes_single_rows(model, shape)};
    traits.parameters = element_count(model.parameters());
    traits.products = products_of(model, shape);
    return traits;
}

// What was not given is as the run has it.
void take_recorded(TrainSettings& settings, const Json& recorded) {
    if (recorded.empty()) return;
    if (settings.virtual_ranks == 0 && recorded.contains("virtual-ranks"))
        settings.virtual_ranks =
            static_cast<int>(json_field<std::int64_t>(recorded, "virtual-ranks", "run.json"));
    const std::string device = recorded.value("device", "cpu");
    if (settings.device == DeviceKind::automatic) set_setting(settings, "device", device);
    const bool is_same = (settings.device == DeviceKind::cuda) == (device == "cuda");
    if (settings.precision == Precision::automatic && is_same)
        set_setting(settings, "precision", recorded.value("precision", "fp32"));
    if (!settings.instruction_set && recorded.contains("isa"))
        set_setting(settings, "isa", json_field<std::string>(recorded, "isa", "run.json"));
    if (decayed_all(recorded)) settings.optimizer.decays_all = true;
}

// Collective. Where nobody said it; the same on all ranks.
int choose_virtual_ranks(
    Start& start, std::uint64_t samples, Model& model, const Task& task, const ModelShape& shape) {
    const Communicator& ranks = start.ranks;
    const TrainSettings& settings = start.settings;
    const int least = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks.size())));
    const int most = default_virtual_ranks(settings,
                                           static_cast<std::int64_t>(samples),
                                           traits_of(model, shape, settings.transform),
                                           ranks.size());
    std::string why_no_more;
    if (settings.device == DeviceKind::cuda) {
        why_no_more = "; on a GPU, more of them cost speed";
    } else if (most > least) {
        const auto why = leaves_obstacle(model, task, shape, {2, settings.batch / most});
        if (!why.empty()) why_no_more = "; more would go one by one: " + why;
    }
    // One V, whatever a rank found.
    std::int64_t chosen = why_no_more.empty() ? -most : -least;
    ranks.all_reduce_max({&chosen, 1});
    const int count = static_cast<int>(-chosen);
    start.notes.push_back(
        settings.plain_summation
            ? ""
            : fmt::format("virtual ranks: {} by default, for as many ranks with the same bits{}",
                          count,
                          why_no_more));
    return count;
}

void check_batch(const TrainSettings& settings, std::uint64_t samples) {
    const int leaves = settings.virtual_ranks;
    check(settings.batch % leaves == 0, [&] {
        return Error(
            "E106",
            fmt::format("--batch {} does not divide into {} virtual ranks", settings.batch, leaves),
            "every leaf of a step has the same number of samples",
            fmt::format("use --batch {} or another multiple of {}",
                        (settings.batch / leaves + 1) * leaves,
                        leaves));
    });
    check(samples >= static_cast<std::uint64_t>(leaves),
          "E215",
          fmt::format("{} samples for {} virtual ranks", samples, leaves),
          "each needs at least one in a step",
          fmt::format("use --virtual-ranks {} or fewer ranks",
                      std::bit_floor(std::max<std::uint64_t>(samples, 1))));
}

// What the weights that a run begins with learned from, as far as it is known.
struct LearnedFrom {
    std::vector<Field> fields;  // those that are normalised
    std::string place;          // of the run, or of the file of weights
    bool has_scaled_targets = false;
};

LearnedFrom learned_from(const TrainSettings& settings, const InitialWeights& weights) {
    LearnedFrom then;
    if (!weights.checkpoint.empty()) {
        then.place = run_source(settings.from).run.string();
        if (const auto kept = kept_data(then.place)) then.fields = kept->fields();
        then.has_scaled_targets =
            read_run_record(then.place).deciding.value("scale-targets", false);
        return then;
    }
    const fs::path beside = weights.file.string() + ".json";  // as 'lockstep export' writes it
    std::error_code failed;
    if (weights.file.empty() || !fs::exists(beside, failed)) return then;
    const std::string text = read_file(beside);
    if (text.find("\"lockstep-prediction\"") == text.npos) return then;
    const Json facts = parse_json(text, beside.string());
    then.place = weights.file.string();
    then.has_scaled_targets = facts.value("scale_targets", false);
    for (const Json& field : facts.value("fields", Json::array()))
        then.fields.push_back({.name = field.value("name", ""),
                               .mean = field.value("mean", std::vector<double>()),
                               .std = field.value("std", std::vector<double>())});
    return then;
}

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
            check(value == roots.value(name, Json()),
                  "E605",
                  fmt::format("ranks have different settings: {} is {} here and {} on rank 0",
                              name,
                              value.dump(),
                              roots.value(name, Json()).dump()),
                  "environment variables and files can differ between nodes",
                  "give settings on the command line, or export them with mpirun -x");
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

Contract settle_contract(Start& start, const Inputs& inputs) {
    const Communicator& ranks = start.ranks;
    TrainSettings& settings = start.settings;
    agree(ranks, [&] { check_normalises(settings, start.transform, *inputs.data); });
    Contract contract;
    contract.recorded = parse_json(
        from_root(ranks,
                  [&] { return recorded_settings(recorded_contracts(settings.run)).dump(); }),
        "run.json");
    agree(ranks, [&] {
        take_recorded(settings, contract.recorded);
        settings.task.kind = choose_task(settings.task, *inputs.data);
    });
    contract.weights = settle_initial_weights(ranks, settings, contract.recorded);
    contract.most_useful = most_useful(settings);
    settle_arithmetic(ranks, start.node.instruction_set, settings);
    return contract;
}

void cut_steps(Start& start,
               const Inputs& inputs,
               Contract& contract,
               Model& model,
               const Task& task,
               const ModelShape& shape) {
    const Communicator& ranks = start.ranks;
    TrainSettings& settings = start.settings;
    const auto samples = static_cast<std::int64_t>(inputs.samples);
    if (settings.virtual_ranks == 0)
        settings.virtual_ranks = choose_virtual_ranks(start, inputs.samples, model, task, shape);
    contract.length = length_of(settings, samples);
    const EffectFacts facts{.samples = inputs.samples,
                            .total_steps = contract.length.total_steps,
                            .age = contract.age()};
    agree(ranks, [&] {
        contract.plan.emplace(settings.virtual_ranks,
                              start.ranks.size(),
                              settings.plain_summation ? Summation::plain : Summation::tree);
        check_batch(settings, inputs.samples);
        for (std::string& note : check_effects(settings, facts))
            settings.warnings.push_back(std::move(note));
    });
    agree(ranks, [&] {
        const auto single = single_rows(settings, samples, contract.length);
        if (single && !takes_single_rows(model, shape)) throw *single;
    });
}

void warn_of_other_statistics(Start& start,
                              const DatasetIndex& data,
                              const InitialWeights& weights) {
    TrainSettings& settings = start.settings;
    const LearnedFrom then = learned_from(settings, weights);
    if (then.has_scaled_targets && !settings.task.scales_targets)
        settings.warnings.push_back(fmt::format(
            "the weights of '{}' give scaled targets, and here they learn targets as they are: "
            "--scale-targets scales them",
            then.place));
    if (brings_statistics(settings.normalise)) return;
    for (const Field& now : data.fields()) {
        const auto before = std::ranges::find(then.fields, now.name, &Field::name);
        const bool is_used = now.name != "targets" || settings.task.scales_targets;
        if (before == then.fields.end() || before->mean.empty() || now.mean.empty() || !is_used ||
            (before->mean == now.mean && before->std == now.std))
            continue;
        settings.warnings.push_back(
            fmt::format("{} are normalised by the mean and deviation of these data, and the "
                        "weights of '{}' learned with others: --normalise RUN takes those of a run",
                        now.name,
                        then.place));
    }
}

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
