// SPDX-License-Identifier: Apache-2.0
// The commands profile and prune: what a model costs, and a smaller one.
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/plan/model_table.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <algorithm>
#include <cstddef>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

struct Totals {
    std::int64_t parameters = 0;
    std::uint64_t activation_bytes = 0, flops = 0;
    double watched_s = 0;
};

Totals totals_of(const ModelProfile& profile) {
    Totals totals;
    for (const LayerCost& layer : profile.layers) {
        totals.parameters += layer.parameters;
        totals.activation_bytes += layer.activation_bytes;
    }
    for (const OperatorCost& cost : profile.operators) {
        totals.flops += cost.flops.value_or(0);
        totals.watched_s += cost.self_s;
    }
    return totals;
}

const char* name_of(StepPass pass) {
    return pass == StepPass::forward ? "forward" : "backward";
}

std::string shape_of(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

double giga(std::uint64_t flops) {
    return static_cast<double>(flops) / 1e9;
}

std::string operator_row(const OperatorCost& cost, double watched_s) {
    const std::string work =
        cost.flops
            ? fmt::format("{:9.3f}  {:9.1f}", giga(*cost.flops), giga(*cost.flops) / cost.self_s)
            : fmt::format("{:>9}  {:>9}", "-", "-");
    return fmt::format("{:10.3f}  {:4.1f} %  {:6g}  {}  {:<8}  {}\n",
                       1e3 * cost.self_s,
                       100 * cost.self_s / watched_s,
                       cost.calls,
                       work,
                       name_of(cost.pass),
                       cost.name);
}

std::string operator_table(const ModelProfile& profile, const Totals& totals, std::size_t most) {
    const std::size_t all = profile.operators.size(), shown = most == 0 ? all : std::min(most, all);
    std::string text = "   self ms   share   calls      GFLOP    GFLOP/s  pass      operator\n";
    for (std::size_t i = 0; i < shown; ++i)
        text += operator_row(profile.operators[i], totals.watched_s);
    if (shown < all) text += fmt::format("and {} more: --top 0 lists all\n", all - shown);
    return text;
}

std::string layer_table(const ModelProfile& profile, double watched_s) {
    std::size_t width = 5;
    for (const LayerCost& layer : profile.layers) width = std::max(width, layer.name.size());
    std::string text = fmt::format("{:<{}}  {:>11}  {:>11}  {:>9}  {:>6}  output\n",
                                   "layer",
                                   width,
                                   "parameters",
                                   "activations",
                                   "ms",
                                   "share");
    for (const LayerCost& layer : profile.layers) {
        const double step_s = layer.forward_s + layer.backward_s;
        text += fmt::format("{:<{}}  {:>11}  {:>11}  {:9.3f}  {:4.1f} %  {}\n",
                            layer.name.empty() ? "-" : layer.name,
                            width,
                            grouped(layer.parameters),
                            bytes_text(layer.activation_bytes),
                            1e3 * step_s,
                            100 * step_s / watched_s,
                            layer.output.empty() ? "-" : shape_of(layer.output));
    }
    return text;
}

/// `most`: operators to list; 0: all.
std::string profile_text(const ProfileSettings& settings,
                         const ModelProfile& profile,
                         std::size_t most) {
    const Totals totals = totals_of(profile);
    const double step_s = profile.forward_s + profile.backward_s;
    std::vector<std::string> inputs;
    for (const auto& input : profile.inputs) inputs.push_back(shape_of(input));
    return fmt::format("model {} | input {}, output {} | {} thread(s), {} steps\n\n{}\n{}\n",
                       settings.model.name,
                       fmt::join(inputs, " and "),
                       shape_of(profile.output),
                       settings.threads,
                       settings.steps,
                       operator_table(profile, totals, most),
                       layer_table(profile, totals.watched_s)) +
           fmt::format("parameters   {}\n", grouped(totals.parameters)) +
           fmt::format("activations  {}; at its peak a step takes {}\n",
                       bytes_text(totals.activation_bytes),
                       bytes_text(profile.peak_bytes)) +
           fmt::format(
               "time         forward {:.3f} ms, backward {:.3f} ms; {:.3f} ms in operators "
               "while watched\n",
               1e3 * profile.forward_s,
               1e3 * profile.backward_s,
               1e3 * totals.watched_s) +
           fmt::format("work         {:.3f} GFLOP where known, {:.1f} GFLOP/s\n",
                       giga(totals.flops),
                       giga(totals.flops) / step_s);
}

Json profile_json(const ProfileSettings& settings, const ModelProfile& profile) {
    const Totals totals = totals_of(profile);
    Json operators = Json::array(), layers = Json::array();
    for (const OperatorCost& cost : profile.operators)
        operators.push_back({{"pass", name_of(cost.pass)},
                             {"name", cost.name},
                             {"calls", cost.calls},
                             {"self_ms", 1e3 * cost.self_s},
                             {"flops", cost.flops ? Json(*cost.flops) : Json()}});
    for (const LayerCost& layer : profile.layers)
        layers.push_back({{"name", layer.name},
                          {"parameters", layer.parameters},
                          {"output", layer.output},
                          {"activation_bytes", layer.activation_bytes},
                          {"forward_ms", 1e3 * layer.forward_s},
                          {"backward_ms", 1e3 * layer.backward_s}});
    return {{"model", settings.model.name},
            {"threads", settings.threads},
            {"steps", settings.steps},
            {"inputs", profile.inputs},
            {"output", profile.output},
            {"operators", operators},
            {"layers", layers},
            {"parameters", totals.parameters},
            {"activation_bytes", totals.activation_bytes},
            {"peak_bytes", profile.peak_bytes},
            {"forward_ms", 1e3 * profile.forward_s},
            {"backward_ms", 1e3 * profile.backward_s},
            {"flops", totals.flops}};
}

constexpr const char* profile_help =
    R"(Trains a model for a few steps on samples that are made up, in this process alone, and shows
LibTorch's operators by the time that they took themselves, with calls and FLOPs of a step where a
formula is known (products of matrices, convolutions, attention: a multiplication and an addition
are two), and the model's layers: parameters, shape of the output, and activations, which is the
memory that forward leaves for backward, and the time of both passes. A program of torch.export
has a row for each module of the Python class. In other models, what follows a layer until the next
one counts with it. Backward begins at the first output: loss, update and exchange between ranks
are not part of it, unless the model computes its loss itself.

MODEL is what --model of train can be. A built-in model has the inputs that 'lockstep models' shows,
a program those of its file. --input replaces them, one for each input in order, or gives extents
that a program leaves free. Other models need it. SHAPE:K are whole numbers below K, and :K is one
for each sample, such as the labels of a model that computes its own loss.

Examples:
  lockstep profile cnn
  lockstep profile resnet18 --input 3x64x64 --classes 10 --batch 32 --threads 2
  lockstep profile gpt --input 128 --layers 2
  lockstep profile net.pt2 --batch 64
  lockstep profile own.so --input 3x32x32 --input :10 --json
)";

struct ProfileArguments {
    ProfileSettings settings;
    TrainSettings usual;  ///< whose rows for models are taken
    std::vector<std::string> inputs;
    std::int64_t classes = 0, vocabulary = 0;
    std::size_t most = 20;
    bool json = false;
};

Error bad_input(const std::string& text, bool takes_tokens) {
    return Error("E103",
                 fmt::format("--input is '{}'", printable(text)),
                 takes_tokens ? "it must be the number of tokens in a sequence"
                              : "it must be channels x height x width, or a number of features",
                 takes_tokens ? "for example --input 128" : "for example --input 3x32x32");
}

// "3x32x32", "128:256", ":10". `input` is what is known of it.
void set_input(const std::string& text, InputShape& input) {
    constexpr std::int64_t most = 1 << 20;
    const std::vector<std::string> parts = split(text, ':');
    const bool is_whole = parts.size() == 2;
    if (is_whole) {
        input.vocabulary = parse_integer(parts[1]).value_or(0);
        input.dimensions = 0;
    }
    const bool takes_tokens = input.vocabulary > 0;
    const auto fail = [&] { return bad_input(text, takes_tokens); };
    check(parts.size() <= 2 && (!is_whole || takes_tokens), fail);
    std::vector<std::int64_t> extents;
    if (!parts[0].empty() || !is_whole)
        for (const std::string& part : split(parts[0], 'x')) {
            const auto extent = parse_integer(part);
            check(extent && *extent >= 1 && *extent <= most, fail);
            extents.push_back(*extent);
        }
    if (is_whole) input.dimensions = static_cast<int>(extents.size());
    if (input.dimensions < 0 && !takes_tokens && extents.size() == 4) input.dimensions = 4;
    const bool is_stored = input.dimensions >= 0;
    check(is_stored ? extents.size() == static_cast<std::size_t>(input.dimensions)
                    : extents.size() == 1 || (extents.size() == 3 && !takes_tokens),
          fail);
    if (extents.size() == 4) {
        input.depth = extents[1];
        extents.erase(extents.begin() + 1);
    }
    const bool is_row = !is_stored && !takes_tokens && extents.size() == 1;
    extents.insert(is_row ? extents.end() : extents.begin(), 3 - extents.size(), 1);
    input.channels = extents[0];
    input.height = extents[1];
    input.width = extents[2];
}

// What is known of the model's inputs without --input.
std::vector<InputShape> known_inputs(const std::string& model) {
    if (source_of(model) == ModelSource::program) return program_inputs(model);
    const ModelFacts* known = find_built_in(model);
    if (known == nullptr) return {};
    const ModelShape& usual = known->usual;
    return {{usual.channels, usual.height, usual.width, usual.vocabulary}};
}

ModelShape shape_of(const ProfileArguments& arguments) {
    const std::string& model = arguments.settings.model.name;
    std::vector<InputShape> inputs = known_inputs(model);
    const bool is_program = source_of(model) == ModelSource::program;
    inputs.resize(std::max(inputs.size(), arguments.inputs.size()));
    for (std::size_t i = 0; i < inputs.size(); ++i) {
        InputShape& input = inputs[i];
        if (arguments.vocabulary > 0 && (is_program ? input.vocabulary > 0 : i == 0))
            input.vocabulary = arguments.vocabulary;
        if (i < arguments.inputs.size()) set_input(arguments.inputs[i], input);
    }
    const bool are_known = std::ranges::all_of(inputs, [](const InputShape& one) {
        return std::min({one.channels, one.depth, one.height, one.width}) > 0;
    });
    check(are_known && !inputs.empty(),
          "E105",
          "--input is missing",
          fmt::format("'{}' {}",
                      printable(model),
                      is_program ? "leaves extents of its inputs to the data"
                                 : "is not built in: its inputs are not known"),
          "for example --input 3x32x32");
    const InputShape& first = inputs.front();
    const ModelFacts* known = find_built_in(model);
    ModelShape shape{.channels = first.channels,
                     .height = first.height,
                     .width = first.width,
                     .classes = known == nullptr ? ModelShape().classes : known->usual.classes,
                     .vocabulary = first.vocabulary,
                     .further = {inputs.begin() + 1, inputs.end()},
                     .dimensions = first.dimensions,
                     .depth = first.depth};
    if (arguments.vocabulary > 0) shape.classes = arguments.vocabulary;
    if (arguments.classes > 0) shape.classes = arguments.classes;
    return shape;
}

int run(ProfileArguments& arguments, const Invocation& call) {
    check_one_process(call, "profile", "it measures one process");
    ProfileSettings& settings = arguments.settings;
    settings.model = arguments.usual.model;
    settings.model.name = call.positionals[0];
    settings.shape = shape_of(arguments);
    const Program& program = call.process.program;
    if (program.profile == nullptr) become_rank(rank_program(program), call.words);
    const ModelProfile profile = program.profile(settings);
    print_once(arguments.json ? profile_json(settings, profile).dump(2) + "\n"
                              : profile_text(settings, profile, arguments.most));
    return 0;
}

void show(const PruneSettings& settings, const PruneResult& result) {
    const PrunedSide &before = result.before, &after = result.after;
    print_once(
        fmt::format("channels    {} -> {}\n", before.channels, after.channels) +
        fmt::format(
            "parameters  {} -> {}\n", grouped(before.parameters), grouped(after.parameters)) +
        fmt::format("forward     {:.3f} ms -> {:.3f} ms for {} samples\n",
                    1e3 * before.forward_s,
                    1e3 * after.forward_s,
                    result.batch) +
        fmt::format("measure it  lockstep eval {} --weights {} --channels {} --data DIR\n",
                    settings.run.string(),
                    settings.output.string(),
                    after.channels) +
        fmt::format("train on    lockstep train --model {} --channels {} --load-weights {} ...\n",
                    result.model,
                    after.channels,
                    settings.output.string()));
}

int run(PruneSettings& settings, const Invocation& call) {
    settings.run = call.positionals[0];
    check_given(!settings.output.empty(), "out", "name a file: --out FILE.safetensors");
    check_one_process(call, "prune", "it runs in one process");
    const Program& program = call.process.program;
    if (program.prune == nullptr) become_rank(rank_program(program), call.words);
    show(settings, program.prune(settings));
    return 0;
}

}  // namespace

Command profile_command() {
    auto arguments = std::make_shared<ProfileArguments>();
    return {
        .name = "profile",
        .summary = "show where the time and memory of a model's step go",
        .usage = "lockstep profile MODEL [options]",
        .text = profile_help,
        .table =
            {{"Samples",
              {list_option(
                   "input CxHxW[:K]",
                   arguments->inputs,
                   "shape of a sample: that of an image, or the number of features or tokens; "
                   "again for each further input"),
               whole_option("classes",
                            arguments->classes,
                            {0, 1 << 24},
                            "classes to predict; 0: the model's default"),
               whole_option(
                   "vocabulary",
                   arguments->vocabulary,
                   {0, 1 << 24},
                   "size of the vocabulary; 0: the default of gpt, and no tokens for other models"),
               whole_option("batch", arguments->settings.batch, {1, 1 << 24}, "samples per step")}},
             train_rows("Model",
                        arguments->usual,
                        {"model-mode", "no-bias", "channels", "layers", "heads", "width"}),
             {"Measuring",
              {whole_option("threads",
                            arguments->settings.threads,
                            {1, 1024},
                            "threads that one operator uses"),
               whole_option("steps",
                            arguments->settings.steps,
                            {1, 1'000'000},
                            "steps to measure, after two steps of warm-up"),
               whole_option("top", arguments->most, {0, 1'000'000}, "operators to list; 0: all")}},
             json_group(arguments->json)},
        .positionals = 1,
        .run = [arguments](const Invocation& call) { return run(*arguments, call); }};
}

Command prune_command() {
    auto settings = std::make_shared<PruneSettings>();
    return {
        .name = "prune",
        .summary = "remove the weakest channels of a trained model",
        .usage = "lockstep prune RUN --out FILE [options]",
        .text =
            "Each layer but the last keeps the channels whose weights have the greatest L1 norm.\n"
            "The next layer loses the inputs of the others. The new file has fewer parameters,\n"
            "not zeros: load it into a model with these --channels, and train it for some\n"
            "epochs. For cnn, cnn-bn and mlp. The forward pass of both is timed.\n\n"
            "Examples:\n"
            "  lockstep prune runs/a --keep 0.5 --out small.safetensors\n"
            "  lockstep train --channels 16,32,256 --load-weights small.safetensors ...\n",
        .table =
            {{"What",
              {path_option("out FILE", settings->output, "new safetensors file"),
               real_option(
                   "keep", settings->keep, {1e-3, 1}, "share of each layer's channels to keep")}},
             weights_group(settings->weights, settings->train_data)},
        .positionals = 1,
        .run = [settings](const Invocation& call) { return run(*settings, call); }};
}

}  // namespace lockstep
