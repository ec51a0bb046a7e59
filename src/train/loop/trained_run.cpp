// SPDX-License-Identifier: Apache-2.0
// Tested: e2e/tasks_test.cpp, e2e/own_models_test.cpp.
#include "loop/trained_run.hpp"

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/progress.hpp"
#include "lockstep/train/export_script.hpp"

#include "loop/inputs.hpp"
#include "model/load_weights.hpp"
#include "model/model_file.hpp"
#include "replica/numerics.hpp"
#include "schedule/blank_step.hpp"
#include "task/input.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/types.h>

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
    check(fs::exists(name),
          "E201",
          fmt::format("cannot open '{}': there is no such file", name),
          "it is the --model of the run, which has no copy of it: an earlier version made it",
          "put the file there, or resume the run once where it is");
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

// Without what is learned from files of its own: predicting needs none of it.
std::string wanted_fields(const TrainSettings& settings, const InferSettings& given) {
    if (given.outputs.empty() || settings.fields.empty()) return settings.fields;
    std::vector<std::string> wanted;
    for (const FieldMapping& field : parse_field_mappings(settings.fields))
        if (field.file.empty() || !is_learned(field.name)) wanted.push_back(mapping_text(field));
    return fmt::format("{}", fmt::join(wanted, ","));
}

using Tokens = std::vector<std::int64_t>;

// Bytes of a text, or numbers with blanks between.
Tokens tokens_of(const std::string& prompt, const Field& field) {
    Tokens tokens;
    const auto fail = [&](const std::string& what) {
        return Error(
            "E103",
            fmt::format("--prompt has the token {}", what),
            fmt::format("the run's tokens are numbers from 0 to {}", field.classes() - 1),
            field.type == ElementType::u8 ? "give other text" : "give numbers with blanks between");
    };
    if (field.type == ElementType::u8)
        for (const char byte : prompt) tokens.push_back(static_cast<unsigned char>(byte));
    else
        for (const std::string& word : split(prompt, ' ')) {
            const auto number = parse_integer(word);
            check(number.has_value(), [&] { return fail(fmt::format("'{}'", printable(word))); });
            tokens.push_back(*number);
        }
    for (const std::int64_t token : tokens)
        check(token >= 0 && token < field.classes(), [&] { return fail(std::to_string(token)); });
    return tokens;
}

std::string text_of(const Tokens& tokens, const Field& field) {
    std::string text;
    for (const std::int64_t token : tokens)
        if (field.type == ElementType::u8)
            text += static_cast<char>(token);
        else
            text += fmt::format("{}{}", text.empty() ? "" : " ", token);
    return text;
}

// The token of share `at` of the probability of all, or of the `top` most probable ones.
std::int64_t chosen(const at::Tensor& logits, const SampleSettings& settings, double at) {
    if (settings.temperature == 0) return logits.argmax().item<std::int64_t>();
    const std::int64_t kept =
        settings.top > 0 ? std::min(settings.top, logits.numel()) : logits.numel();
    const auto [values, places] = (logits / settings.temperature).topk(kept);
    const at::Tensor sums = values.softmax(0).cumsum(0);
    const std::int64_t place = sums.le(at * sums[-1].item<double>()).sum().item<std::int64_t>();
    return places[std::min(place, kept - 1)].item<std::int64_t>();
}

// The newest tokens that the model's context holds. A file's may be exported for whole contexts
// alone: what follows a token changes nothing before it.
at::Tensor input_of(const Tokens& tokens, const TrainedRun& trained) {
    const std::int64_t context = trained.shape.width;
    const std::int64_t count = std::min<std::int64_t>(std::ssize(tokens), context);
    const bool is_file = source_of(trained.run.settings.model.name) != ModelSource::registered;
    at::Tensor input = torch::zeros({1, is_file ? context : count}, torch::kInt64);
    std::copy(tokens.end() - count, tokens.end(), input.data_ptr<std::int64_t>());
    return input;
}

at::Tensor tensor_of(const ExportedTensor& exported) {
    std::vector<std::byte> values = exported.values();
    const auto type = exported.element == ExportedElement::f32 ? torch::kFloat32 : torch::kInt64;
    return torch::from_blob(values.data(), exported.shape, type).clone();
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
    trained.learned_from = learned_from(ranks, given, trained.run);
    // Fields that are given are all there are: predicting needs no labels.
    const std::string of_run = given.fields.empty() ? wanted_fields(settings, given) : "";
    trained.data = given.data.empty() ? trained.learned_from
                   : of_run.empty()   ? open_dataset(ranks, given.data, given.fields, links)
                                      : open_dataset(ranks, given.data, of_run, links, "");
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

std::string sample_tokens(const SampleSettings& settings, const Communicator& ranks) {
    const TrainedRun trained = open_trained_run(settings.from, ranks);
    check(trained.run.settings.task.kind == TaskKind::next_token,
          "E106",
          fmt::format("'{}' predicts no tokens", settings.from.run.string()),
          "sampling is for runs of --task next-token",
          "use 'lockstep predict'");
    const DatasetIndex& data = *trained.learned_from;
    const Field& field = data.fields()[data.field_position("tokens")];
    Tokens tokens = tokens_of(settings.prompt, field);
    const at::NoGradGuard no_gradients;
    trained.model->set_mode(ModelMode::evaluate);
    CounterRandom random(Purpose::sampling, {static_cast<std::uint64_t>(settings.seed)});
    Progress progress("sampling", static_cast<std::uint64_t>(settings.tokens));
    for (std::int64_t i = 0; i < settings.tokens; ++i) {
        const std::int64_t last =
            std::min<std::int64_t>(std::ssize(tokens), trained.shape.width) - 1;
        const at::Tensor logits =
            only(trained.model->forward({{"tokens", input_of(tokens, trained)}}));
        tokens.push_back(chosen(logits[0][last].to(torch::kFloat64), settings, random.uniform()));
        progress.update(static_cast<std::uint64_t>(i + 1));
    }
    return text_of(tokens, field);
}

ExportSummary export_script(const fs::path& run,
                            const fs::path& checkpoint,
                            const fs::path& file,
                            ExportedTensors tensors) {
    const fs::path model = trained_model_file(run, ModelSource::script, "torchscript");
    const CheckpointManifest manifest = read_checkpoint_manifest(checkpoint);
    NamedTensors values;
    for (const ExportedTensor& exported : exported_tensors(checkpoint, manifest, tensors))
        values.push_back({exported.name, tensor_of(exported)});
    NewFile out(file);
    out.write(bytes_of(script_with(model, values)));
    out.finish();
    return {.step = manifest.state.step, .tensors = values.size(), .bytes = out.bytes()};
}

}  // namespace lockstep
