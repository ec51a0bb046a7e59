// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/infer.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/observe/run_directory.hpp"

#include "loop/data_feed.hpp"
#include "loop/evaluate.hpp"
#include "loop/output_file.hpp"
#include "loop/run_settings.hpp"
#include "model/load_weights.hpp"
#include "model/model_file.hpp"
#include "model/precision.hpp"
#include "replica/numerics.hpp"
#include "task/test_data.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// What training would have made of the run's settings, without anything that learns.
struct Trained {
    RunSettings run;
    std::shared_ptr<const DatasetIndex> learned_from, data;
    std::unique_ptr<Task> task;
    std::unique_ptr<Model> model;
};

void check_same_data(const DatasetIndex& data, const RunSettings& run) {
    check(run.data_digest.empty() || data.digest() == run.data_digest, [&] {
        return Error(
            "E306",
            fmt::format("'{}' is not what the run was trained on", data.path().string()),
            fmt::format("its digest is {}, the run's is {}", data.digest(), run.data_digest),
            "name the training data with --train-data: their statistics normalise");
    });
}

void load(Trained& trained, const InferSettings& settings) {
    if (settings.weights.empty())
        load_checkpointed(*trained.model, RunPaths{settings.run}.checkpoints());
    else
        load_weights(*trained.model, SafetensorsFile(settings.weights), "");
}

Trained open_trained(const InferSettings& given, const Communicator& ranks) {
    Trained trained{.run = agree(ranks, [&] { return read_run_settings(given.run); })};
    TrainSettings& settings = trained.run.settings;
    settle_arithmetic(ranks, settings);
    if (!given.train_data.empty()) settings.data = given.train_data;
    trained.learned_from = open_dataset(ranks, settings.data, settings.fields);
    trained.data = open_dataset(ranks, given.data, given.fields);
    agree(ranks, [&] {
        check_same_data(*trained.learned_from, trained.run);
        const auto pipeline = TransformPipeline::parse(settings.transform);
        trained.task = make_task(settings.task, *trained.learned_from, pipeline);
        settings.test_data = given.data;
        check_test_inputs(*trained.data, *trained.learned_from, settings, *trained.task);
        if (given.outputs.empty()) trained.task->check_test_data(*trained.data);
        const ModelShape shape =
            evaluation_input(*trained.learned_from, *trained.learned_from, settings, *trained.task)
                .shape();
        trained.model =
            with_precision(open_model(settings.model, shape, settings.seed), settings.precision);
        load(trained, given);
    });
    return trained;
}

}  // namespace

InferResult infer(const InferSettings& settings, const Communicator& ranks) {
    agree(ranks, [&] {
        if (!settings.outputs.empty()) output_format(settings.outputs);
    });
    const Trained trained = open_trained(settings, ranks);
    const int virtual_ranks = std::max(trained.run.settings.virtual_ranks, ranks.size());
    TrainSettings with_ranks = trained.run.settings;
    with_ranks.virtual_ranks = virtual_ranks;
    const LeafRange leaves = leaves_of(ranks.rank(), ranks.size(), virtual_ranks);
    Evaluator evaluator(
        trained.data, *trained.learned_from, ranks, leaves, with_ranks, *trained.task);
    InferResult result{
        .evaluation = {}, .confusion = {}, .samples = trained.data->samples(), .shape = {}};
    if (settings.outputs.empty()) {
        const Evaluation found = evaluator.run(*trained.model);
        result.evaluation = {found.metrics, found.text};
        result.confusion = found.confusion;
        return result;
    }
    result.shape = trained.task->output_shape();
    result.shape.insert(result.shape.begin(), static_cast<std::int64_t>(result.samples));
    OutputFile file(ranks, settings.outputs, result.shape);
    evaluator.for_each_output(
        *trained.model,
        [&](std::uint64_t sample, std::span<const float> row) { file.write(sample, row); });
    file.finish();
    return result;
}

}  // namespace lockstep
