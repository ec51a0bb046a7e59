// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/train/model_table.hpp"
#include "lockstep/train/profile.hpp"

#include "command.hpp"
#include "train/profile_report.hpp"

#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* profile_help =
    R"(Trains a model for a few steps on samples that are made up, in this process alone, and shows
LibTorch's operators by the time that they took themselves, with calls and FLOPs of a step where a
formula is known (products of matrices, convolutions, attention: a multiplication and an addition
are two), and the model's layers: parameters, shape of the output, and activations, which is the
memory that forward leaves for backward. What follows a layer until the next one counts with it.
Backward begins at the outputs: loss, update and exchange between ranks are not part of it.

MODEL is what --model of train can be. A built-in model has the inputs that 'lockstep models' shows
unless --input says otherwise; others need it.

Examples:
  lockstep profile cnn
  lockstep profile resnet18 --input 3x64x64 --classes 10 --batch 32 --threads 2
  lockstep profile gpt --input 128 --layers 2
  lockstep profile net.pt --input 3x32x32 --json
)";

struct ProfileArguments {
    ProfileSettings settings;
    TrainSettings usual;  ///< whose rows for models are taken
    std::string input;
    std::int64_t classes = 0, vocabulary = 0;
    std::size_t most = 20;
    bool json = false;
};

Error bad_input(const std::string& text, const ModelShape& shape) {
    const bool takes_tokens = shape.vocabulary > 0;
    return Error("E103",
                 fmt::format("--input is '{}'", printable(text)),
                 takes_tokens ? "it must be the number of tokens in a sequence"
                              : "it must be channels x height x width, or a number of features",
                 takes_tokens ? "for example --input 128" : "for example --input 3x32x32");
}

std::vector<std::int64_t> parsed_extents(const std::string& text, const ModelShape& shape) {
    constexpr std::int64_t most = 1 << 20;
    std::vector<std::int64_t> extents;
    for (const std::string& part : split(text, 'x')) {
        const auto extent = parse_integer(part);
        check(extent && *extent >= 1 && *extent <= most, [&] { return bad_input(text, shape); });
        extents.push_back(*extent);
    }
    const bool is_whole = extents.size() == 1 || (extents.size() == 3 && shape.vocabulary == 0);
    check(is_whole, [&] { return bad_input(text, shape); });
    return extents;
}

void set_input(const std::string& text, ModelShape& shape) {
    const auto extents = parsed_extents(text, shape);
    shape.channels = shape.height = shape.width = 1;
    if (extents.size() == 3) {
        shape.channels = extents[0];
        shape.height = extents[1];
        shape.width = extents[2];
    } else {
        (shape.vocabulary > 0 ? shape.width : shape.channels) = extents[0];
    }
}

ModelShape shape_of(const ProfileArguments& arguments) {
    const ModelFacts* known = find_built_in(arguments.settings.model.name);
    check(known != nullptr || !arguments.input.empty(), [&] {
        return Error("E105",
                     "--input is missing",
                     fmt::format("'{}' is not built in: its inputs are not known",
                                 printable(arguments.settings.model.name)),
                     "for example --input 3x32x32");
    });
    ModelShape shape = known != nullptr ? known->usual : ModelShape();
    if (arguments.vocabulary > 0) shape.vocabulary = shape.classes = arguments.vocabulary;
    if (arguments.classes > 0) shape.classes = arguments.classes;
    if (!arguments.input.empty()) set_input(arguments.input, shape);
    return shape;
}

int run(ProfileArguments& arguments, const Invocation& call) {
    agree(call.process.ranks, [&] {
        check(call.process.ranks.size() == 1, [] {
            return Error("E106",
                         "'lockstep profile' under a launcher of several ranks",
                         "it looks at one process",
                         "call it without mpirun or srun");
        });
    });
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

OptionTable options_of(ProfileArguments& arguments) {
    OptionTable train = setting_table(arguments.usual);
    std::vector<Option> model;
    for (const char* name : {"no-bias", "channels", "layers", "heads", "width"})
        model.push_back(find_option(train, name));
    ProfileSettings& settings = arguments.settings;
    return {{"Samples",
             {text_option("input",
                          "CxHxW",
                          arguments.input,
                          "of a sample: an image, or one number, of features or of tokens"),
              whole_option("classes", arguments.classes, 0, 1 << 24, "to predict; 0: the usual"),
              whole_option("vocabulary",
                           arguments.vocabulary,
                           0,
                           1 << 24,
                           "different tokens; 0: the usual of gpt, and no tokens for others"),
              whole_option("batch", settings.batch, 1, 1 << 24, "samples of a step")}},
            {"Model", model},
            {"Measuring",
             {whole_option("threads", settings.threads, 1, 1024, "of one operator"),
              whole_option("steps", settings.steps, 1, 1'000'000, "to watch, after two to warm up"),
              whole_option("top", arguments.most, 0, 1'000'000, "operators to list; 0: all"),
              flag_option("json", arguments.json, "all of it, for programs")}}};
}

}  // namespace

Command profile_command() {
    auto arguments = std::make_shared<ProfileArguments>();
    return {.name = "profile",
            .summary = "show where the time and memory of a model's step go",
            .usage = "lockstep profile MODEL [options]",
            .text = profile_help,
            .table = options_of(*arguments),
            .positionals = 1,
            .run = [arguments](const Invocation& call) { return run(*arguments, call); }};
}

}  // namespace lockstep
