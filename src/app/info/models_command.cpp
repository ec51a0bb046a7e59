// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/model_table.hpp"

#include "command.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr const char* models_help =
    R"(Lists the models that train --model can name. Parameters are counted for the inputs and classes shown.
The last columns show which other inputs a model takes, and what its outputs mean. A model for
classification also serves for multi-label and regression. docs/models.md explains how to choose one,
and how to exchange weights with torchvision. For FILE.pt2, a program of
torch.export, the command shows inputs, output, parameters and operators (docs/your-model.md).

Examples:
  lockstep models
  lockstep models resnet18 resnet50
  lockstep models net.pt2
)";

constexpr std::size_t most_names = 64;

const ModelFacts& named_model(const std::string& name) {
    const ModelFacts* found = find_built_in(name);
    check(found != nullptr, [&] {
        std::vector<std::string> names;
        for (const ModelFacts& model : built_in_models()) names.emplace_back(model.name);
        return Error("E103",
                     fmt::format("no model '{}'", printable(name)),
                     "'lockstep models' lists all that are built in",
                     did_you_mean(name, names));
    });
    return *found;
}

std::string input_text(const ModelShape& shape) {
    return shape.vocabulary > 0
               ? fmt::format("{} tokens", shape.width)
               : fmt::format("{}x{}x{}", shape.channels, shape.height, shape.width);
}

std::string model_row(const ModelFacts& model) {
    const ModelShape& shape = model.usual;
    const auto count = static_cast<std::uint64_t>(model.parameters(shape));
    return fmt::format("{:<16} {:>10}  {:<11}  {:>7}  {:<15}  {}\n",
                       model.name,
                       grouped(count),
                       input_text(shape),
                       shape.classes,
                       model.input,
                       model.task);
}

int show_models(const Invocation& call) {
    std::string rows, programs;
    for (const std::string& name : call.positionals)
        if (source_of(name) == ModelSource::program)
            programs += describe_program(name);
        else
            rows += model_row(named_model(name));
    if (call.positionals.empty())
        for (const ModelFacts& model : built_in_models()) rows += model_row(model);
    if (!rows.empty())
        rows.insert(0,
                    fmt::format("{:<16} {:>10}  {:<11}  {:>7}  {:<15}  {}\n",
                                "name",
                                "parameters",
                                "of inputs",
                                "classes",
                                "takes",
                                "task"));
    print_once(rows + programs);
    return 0;
}

}  // namespace

constexpr const char* export_script_help =
    R"(Prints lockstep_export.py, a program for Python that needs PyTorch 2.9 or later and nothing else. It exports
a model in training mode with a free number of samples, and compares the file with the model for two
numbers of samples. If the model cannot be exported, it names the line of your code and what to change
there (docs/your-model.md). --help of the script shows its options. The installed copy is
PREFIX/share/lockstep/lockstep_export.py.

Examples:
  lockstep export-script > lockstep_export.py
  python lockstep_export.py my.module:make_net --input image=f32[3,224,224] --out net.pt2
)";

constexpr const char* export_script_text =
#include "export_script.inc"
    ;

Command models_command() {
    return {.name = "models",
            .summary = "list the built-in models, or show what a program of torch.export holds",
            .usage = "lockstep models [NAME|FILE.pt2...]",
            .text = models_help,
            .optional_positionals = most_names,
            .run = show_models};
}

Command export_script_command() {
    return {.name = "export-script",
            .summary = "print a Python program that exports PyTorch models for 'train --model'",
            .usage = "lockstep export-script > lockstep_export.py",
            .text = export_script_help,
            .run = [](const Invocation&) {
                print_once(export_script_text);
                return 0;
            }};
}

}  // namespace lockstep
