// SPDX-License-Identifier: Apache-2.0
// Settings that ranks agree on before a run is made for them.
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/data/transform.hpp"
#include "lockstep/plan/contract.hpp"

#include "loop/loop.hpp"
#include "profile/operator_ledger.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"
#include "schedule/leaf_passes.hpp"

#include <algorithm>
#include <bit>
#include <string_view>
#include <utility>

#include <fmt/format.h>

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
    check(samples >= static_cast<std::uint64_t>(leaves), [&] {
        return Error("E215",
                     fmt::format("{} samples for {} virtual ranks", samples, leaves),
                     "each needs at least one in a step",
                     fmt::format("use --virtual-ranks {} or fewer ranks",
                                 std::bit_floor(std::max<std::uint64_t>(samples, 1))));
    });
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

}  // namespace lockstep
