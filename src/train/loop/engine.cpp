// SPDX-License-Identifier: Apache-2.0
#include "loop/engine.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/losses.hpp"

#include "model/load_weights.hpp"
#include "model/model_file.hpp"
#include "model/wrapped_model.hpp"
#include "schedule/blank_step.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

// How many dimensions each of the model's tensors has.
std::vector<std::size_t> dimensions_of(const Model& model) {
    std::vector<std::size_t> dimensions;
    for (const auto& [name, tensor] : model.parameters())
        dimensions.push_back(static_cast<std::size_t>(tensor.dim()));
    return dimensions;
}

constexpr double least_long_s = 1;  // a first pass of small models is slow by what it prepares

void make_model(Engine& engine, Start& start, const Inputs& inputs) {
    TrainSettings& settings = start.settings;
    const DatasetIndex& data = *inputs.data;
    agree_on_torch(start.ranks, [&] {
        const auto pipeline = TransformPipeline::parse(settings.transform);
        engine.task = make_task(settings, data, pipeline);
        const Task& task = *engine.task;
        if (std::string text = task.class_warning(); !text.empty())
            settings.warnings.push_back(std::move(text));
        engine.input = std::make_unique<InputReader>(data, pipeline, settings, data, task);
        if (inputs.test_data) {
            check_test_inputs(*inputs.test_data, data, settings, task);
            task.check_test_data(*inputs.test_data);
        }
        auto model = open_model(settings.model, engine.input->shape(), settings.seed);
        freeze_named(*model, settings.freeze);
        engine.rate_factors = rate_factors(settings.optimizer, names_of(model->parameters()));
        check_input_count(model->input_names(), data, settings);
        engine.model = on_device(std::move(model), engine.device());
        name_outputs(*engine.task, *engine.model, engine.input->shape());
        if (inputs.test_data) check_metric(settings, task.evaluation(task.no_sums(), 1).metrics);
        engine.optimizer = make_optimizer(settings.optimizer);
    });
}

// What it is worth here is measured, on all ranks at once. Some operators take so long in fp16 that
// the user should know what is waited for, and that one pass says it all.
void reduce_precision(Engine& engine, Start& start, std::int64_t rows) {
    TrainSettings& settings = start.settings;
    const auto reduce = [&] {
        engine.model = with_precision(
            std::move(engine.model),
            settings.precision,
            engine.task->takes_16_bits() ? ReducedOutputs::as_is_to_learn : ReducedOutputs::fp32);
    };
    if (engine.gpu) return reduce();
    const std::string name =
        config_text(find_option(setting_table(settings), "precision").current());
    if (start.ranks.is_root())
        once(Level::info, "timing micro-batches of {} sample(s) in fp32 and in {}", rows, name);
    agree(start.ranks, [&] {
        const auto seconds = [&](double enough_s) {
            return blank_step_seconds(
                *engine.model, *engine.task, engine.input->shape(), rows, enough_s);
        };
        const double full_s = seconds(std::numeric_limits<double>::infinity());
        reduce();
        const double reduced_s = seconds(std::max(10 * full_s, least_long_s));
        const std::string slower = slower_text(name, full_s, reduced_s);
        if (!slower.empty()) settings.warnings.push_back(slower);
    });
}

// Everything else that can be wrong with the model and its data, before a run is made for it.
void prove_model(Engine& engine, Start& start, Contract& contract) {
    const TrainSettings& settings = start.settings;
    const Communicator& world = start.ranks;
    const std::int64_t leaf = settings.batch / settings.virtual_ranks;
    const std::int64_t rows = (leaf + settings.micro_batches - 1) / settings.micro_batches;
    if (has_16_bits(settings.precision)) reduce_precision(engine, start, rows);
    const BlankStep blank = agree(world, [&] {
        return run_blank_step(
            *engine.model, *engine.task, engine.input->shape(), rows, *engine.optimizer);
    });
    contract.bits.canary = blank.hash;
    contract.bits.processor = engine.gpu ? engine.gpu->text() : start.node.cpu_model;
    check_same_canary(
        world,
        make_canary(blank.hash, start.node.host, contract.bits.processor, Environment()),
        engine.model->author());
    // After the canary, which a resumed run computes without the file.
    agree(world, [&] {
        if (!contract.weights.file.empty())
            start.notes.push_back(load_weights(*engine.model,
                                               WeightsFile(contract.weights.file),
                                               settings.load_skip,
                                               WeightsFor::training,
                                               settings.load_prefix));
        if (!contract.weights.checkpoint.empty())
            start.notes.push_back(
                load_from_run(*engine.model, contract.weights.checkpoint, settings.load_skip));
    });
    // One rank's order for all; it decides how buckets are cut, never a bit.
    engine.order = parse_json(world.broadcast(Json(blank.order).dump()), "order of gradients")
                       .get<std::vector<std::size_t>>();
}

}  // namespace

Engine make_engine(Start& start, Inputs& inputs, Contract& contract) {
    Engine engine;
    engine.gpu = settle_device(start.ranks, start.settings);
    if (start.settings.precision == Precision::tf32)
        start.notes.push_back(
            "precision tf32: factors of products and convolutions have 10 bits behind the point; "
            "a new run with --precision fp32 rounds none");
    inputs.digests.update(agreed_digests(start.ranks, start.settings));
    if (!contract.weights.fact.empty())
        inputs.digests[contract.weights.name] = contract.weights.fact;
    make_model(engine, start, inputs);
    cut_steps(start, inputs, contract, *engine.model, *engine.task, engine.input->shape());
    prove_model(engine, start, contract);
    start.notes.push_back(group_text(start.settings.optimizer, dimensions_of(*engine.model)));
    start.notes.push_back(scale_text(start.settings, contract.length));
    if (source_of(start.settings.model.name) == ModelSource::script)
        start.notes.push_back(
            "TorchScript is deprecated in PyTorch: export new models by torch.export to FILE.pt2 "
            "('lockstep export-script')");
    return engine;
}

}  // namespace lockstep
