// SPDX-License-Identifier: Apache-2.0
#include "loop/trained_run.hpp"

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/run/run_directory.hpp"

#include "loop/data_feed.hpp"
#include "loop/inputs.hpp"
#include "model/load_weights.hpp"
#include "model/model_file.hpp"
#include "model/precision.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"
#include "task/input.hpp"
#include "task/test_data.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

// Collective. Foreign files with other times may hold the same samples.
void check_same_data(const Communicator& ranks,
                     const std::shared_ptr<const DatasetIndex>& data,
                     const RunSettings& run) {
    if (run.data_digest.empty() || data->digest() == run.data_digest) return;
    const bool is_foreign = data->manifest().kind == ManifestKind::foreign;
    if (!is_foreign || run.data_content.empty())
        agree_on_failure(
            ranks,
            Error("E306",
                  fmt::format("'{}' is not what the run was trained on", data->path().string()),
                  fmt::format("its digest is {}, the run's is {}", data->digest(), run.data_digest),
                  "name the training data with --train-data: their statistics normalise"));
    TrainSettings settings = run.settings;
    settings.accepts_data = true;
    settle_run_data(ranks,
                    settings,
                    data,
                    {{"data-digest", run.data_digest}, {"data-content", run.data_content}});
}

// Collective. The run's data, whose statistics normalise.
std::shared_ptr<const DatasetIndex> open_training_data(const Communicator& ranks,
                                                       const InferSettings& given,
                                                       const TrainSettings& settings) {
    try {
        return open_dataset(
            ranks, settings.data, settings.fields, links_of(settings.follows_links));
    } catch (const Error& error) {
        if (error.exit_code() != ExitCode::missing_input || !given.train_data.empty()) throw;
        agree_on_failure(
            ranks,
            Error(error.code(),
                  error.what(),
                  fmt::format("the data that '{}' was trained on were there; their mean and "
                              "deviation normalise what it is given",
                              given.run.string()),
                  "say with --train-data DIR where they are now"));
        throw;
    }
}

// The path is the one that was given to `train`, perhaps in another folder.
void check_has_model_file(const TrainSettings& settings) {
    const std::string& name = settings.model.name;
    if (source_of(name) == ModelSource::registered || fs::path(name).is_absolute()) return;
    check(fs::exists(name), [&] {
        return Error(
            "E201",
            fmt::format("cannot open '{}': there is no such file", name),
            "the run was created with this --model, relative to the folder where 'train' ran",
            "give the command in that folder");
    });
}

// The side of a sample follows from its number, so it says nothing about other data.
SamplePart part_of_run(RunPart part, const TrainedRun& trained) {
    const TrainSettings& settings = trained.run.settings;
    const bool is_own = trained.data->digest() == trained.learned_from->digest();
    if (part == RunPart::all) {
        if (settings.split > 0 && is_own)
            once(Level::warn,
                 "the run was trained on {} of these {} samples: --part held-out takes the others",
                 grouped(samples_in(trained.data->blocks(), trained_part(settings))),
                 grouped(trained.data->samples()));
        return {};
    }
    const char* const name = part == RunPart::trained ? "train" : "held-out";
    check(settings.split > 0, [&] {
        return Error(
            "E106",
            fmt::format("--part {} is for runs with --split", name),
            fmt::format("'{}' was trained on all of its data", trained.run.settings.run.string()),
            "drop it");
    });
    check(is_own, [&] {
        return Error(
            "E106",
            fmt::format("--part {} is of the data that the run was trained on", name),
            fmt::format("'{}' are other data, or other fields", trained.data->place()),
            "give the training data without --field, and also with --train-data; or drop --part");
    });
    return part == RunPart::trained ? trained_part(settings) : tested_part(settings);
}

void load(TrainedRun& trained, const InferSettings& settings) {
    if (settings.weights.empty())
        load_checkpointed(*trained.model, RunPaths{settings.run}.checkpoints());
    else
        load_weights(*trained.model, WeightsFile(settings.weights), "", WeightsFor::evaluation);
}

}  // namespace

TrainedRun open_trained_run(const InferSettings& given, const Communicator& ranks) {
    TrainedRun trained{.run = agree(ranks, [&] { return read_run_settings(given.run); })};
    TrainSettings& settings = trained.run.settings;
    if (!given.channels.empty()) settings.model.channels = given.channels;
    settle_arithmetic(ranks, read_node_facts().instruction_set, settings);
    if (!given.train_data.empty()) settings.data = given.train_data;
    settings.follows_links = settings.follows_links || given.follows_links;
    const Links links = links_of(settings.follows_links);
    trained.learned_from = open_training_data(ranks, given, settings);
    // Fields that are given are all there are: predicting needs no labels.
    trained.data = open_test_dataset(
        ranks, given.data, given.fields.empty() ? settings.fields : "", given.fields, links);
    check_same_data(ranks, trained.learned_from, trained.run);
    agree(ranks, [&] {
        check_has_model_file(settings);
        trained.part = part_of_run(given.part, trained);
        const auto pipeline = TransformPipeline::parse(settings.transform);
        trained.task = make_task(settings, *trained.learned_from, pipeline);
        settings.test_data = given.data;
        check_test_inputs(*trained.data, *trained.learned_from, settings, *trained.task);
        if (given.outputs.empty()) trained.task->check_test_data(*trained.data);
        trained.shape =
            evaluation_input(*trained.learned_from, *trained.learned_from, settings, *trained.task)
                .shape();
        trained.model = with_precision(open_model(settings.model, trained.shape, settings.seed),
                                       settings.precision);
        name_outputs(*trained.task, *trained.model, trained.shape);
        load(trained, given);
    });
    return trained;
}

}  // namespace lockstep
