// SPDX-License-Identifier: Apache-2.0
#include "loop/trained_run.hpp"

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/plan/model_table.hpp"

#include "loop/inputs.hpp"
#include "model/load_weights.hpp"
#include "model/model.hpp"
#include "model/model_file.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"
#include "task/input.hpp"

#include <optional>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Collective. Whether `data` are those that the run was trained on. Foreign files with other times
// may hold the same samples.
bool is_own_data(const Communicator& ranks,
                 const std::shared_ptr<const DatasetIndex>& data,
                 const RunSettings& run) {
    if (run.data_digest.empty() || data->digest() == run.data_digest) return true;
    return data->manifest().kind == ManifestKind::foreign && !run.data_content.empty() &&
           content_of(ranks, data) == run.data_content;
}

// Collective. The training data, of a run that does not have a description of them: one of an
// earlier version.
std::shared_ptr<const DatasetIndex> open_training_data(const Communicator& ranks,
                                                       const InferSettings& given,
                                                       const RunSettings& run) {
    const TrainSettings& settings = run.settings;
    try {
        auto data =
            open_dataset(ranks, settings.data, settings.fields, links_of(settings.follows_links));
        if (!is_own_data(ranks, data, run))
            agree_on_failure(
                ranks,
                Error("E306",
                      fmt::format("'{}' is not what the run was trained on", data->path().string()),
                      fmt::format(
                          "its digest is {}, the run's is {}", data->digest(), run.data_digest),
                      "name the training data with --train-data: their statistics normalise"));
        return data;
    } catch (const Error& error) {
        if (error.exit_code() != ExitCode::missing_input || !given.train_data.empty()) throw;
        agree_on_failure(
            ranks,
            Error(error.code(),
                  error.what(),
                  fmt::format("'{}' is of an earlier version and has no data.json; mean and "
                              "deviation of its training data normalise what it is given",
                              given.run.string()),
                  "say with --train-data DIR where they are now, or resume the run once"));
        throw;
    }
}

std::shared_ptr<const DatasetIndex> learned_from(const Communicator& ranks,
                                                 const InferSettings& given,
                                                 const RunSettings& run) {
    auto kept = agree(ranks, [&] { return kept_data(given.run); });
    if (kept && given.train_data.empty())
        return std::make_shared<const DatasetIndex>(std::move(*kept));
    auto data = open_training_data(ranks, given, run);
    if (!kept || !brings_statistics(run.settings.normalise)) return data;
    return std::make_shared<const DatasetIndex>(data->with_statistics(kept->fields()));
}

// A run has its own copy; those of earlier versions have the path that was given to `train`.
void check_has_model_file(const RunSettings& run, const std::string& folder) {
    const std::string& name = run.settings.model.name;
    if (source_of(name) == ModelSource::registered) return;
    if (name.starts_with(folder)) return check_model_file(run);
    check(fs::exists(name), [&] {
        return Error("E201",
                     fmt::format("cannot open '{}': there is no such file", name),
                     "it is the --model of the run, which has no copy of it: an earlier version "
                     "made it",
                     "put the file there, or resume the run once where it is");
    });
}

// Collective. The side of a sample follows from its number, so it says nothing about other data.
SamplePart part_of_run(const Communicator& ranks, RunPart part, const TrainedRun& trained) {
    const TrainSettings& settings = trained.run.settings;
    if (part == RunPart::all && settings.split == 0) return {};
    const bool is_own = is_own_data(ranks, trained.data, trained.run);
    if (part == RunPart::all) {
        if (is_own)
            once(Level::warn,
                 "the run was trained on {} of these {} samples: --part held-out takes the others",
                 grouped(samples_in(trained.data->blocks(), trained_part(settings))),
                 grouped(trained.data->samples()));
        return {};
    }
    const char* const name = part == RunPart::trained ? "train" : "held-out";
    std::optional<Error> misuse;
    if (settings.split == 0)
        misuse = Error("E106",
                       fmt::format("--part {} is for runs with --split", name),
                       fmt::format("'{}' was trained on all of its data", settings.run.string()),
                       "drop it");
    else if (!is_own)
        misuse = Error("E106",
                       fmt::format("--part {} is of the data that the run was trained on", name),
                       fmt::format("'{}' are other data, or other fields", trained.data->place()),
                       "give the training data without --field, or drop --part");
    agree_on_failure(ranks, misuse);
    return part == RunPart::trained ? trained_part(settings) : tested_part(settings);
}

}  // namespace

// Without what is learned from files of its own: predicting needs none of it.
std::string wanted_fields(const TrainSettings& settings, const InferSettings& given) {
    if (given.outputs.empty() || settings.fields.empty()) return settings.fields;
    std::vector<std::string> wanted;
    for (const FieldMapping& field : parse_field_mappings(settings.fields))
        if (field.file.empty() || !is_learned(field.name)) wanted.push_back(mapping_text(field));
    return fmt::format("{}", fmt::join(wanted, ","));
}

TrainedRun open_trained_run(const InferSettings& given, const Communicator& ranks) {
    TrainedRun trained{.run = agree(ranks, [&] { return read_run_settings(given.run); })};
    TrainSettings& settings = trained.run.settings;
    if (!given.channels.empty()) settings.model.channels = given.channels;
    settle_arithmetic(ranks, read_node_facts().instruction_set, settings);
    if (!given.train_data.empty()) settings.data = given.train_data;
    settings.follows_links = settings.follows_links || given.follows_links;
    const Links links = links_of(settings.follows_links);
    trained.learned_from = learned_from(ranks, given, trained.run);
    // Fields that are given are all there are: predicting needs no labels.
    const std::string of_run = given.fields.empty() ? wanted_fields(settings, given) : "";
    trained.data = given.data.empty() ? trained.learned_from
                   : of_run.empty()   ? open_dataset(ranks, given.data, given.fields, links)
                                      : open_test_dataset(ranks, given.data, of_run, "", links);
    trained.part = part_of_run(ranks, given.part, trained);
    agree(ranks, [&] {
        check_has_model_file(trained.run, fs::absolute(given.run).string());
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
        if (given.weights.empty())
            trained.step = load_checkpointed(*trained.model, given.run, given.step);
        else
            load_weights(*trained.model, WeightsFile(given.weights), "", WeightsFor::evaluation);
    });
    return trained;
}

}  // namespace lockstep
