// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/launch/live_placement.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/train/infer.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

struct InferArguments {
    InferSettings settings;
    int np = 0;
    bool oversubscribe = false;
    std::filesystem::path confusion;
};

OptionTable table_of(InferArguments& arguments, Option output) {
    InferSettings& settings = arguments.settings;
    return {{"Output", {std::move(output)}},
            applied_to_group(settings),
            foreign_group(settings.fields, settings.follows_links),
            weights_group(settings.weights, settings.train_data),
            ranks_group(arguments.np, arguments.oversubscribe)};
}

/// Starts ranks, becomes one that carries LibTorch, or calls `show` with what was found.
int run_infer(InferArguments& arguments,
              const Invocation& call,
              const std::function<void(const InferResult&)>& show) {
    arguments.settings.run = call.positionals[0];
    check_given(!arguments.settings.data.empty(), "data", "name a data set: --data DIR");
    const Program& program = call.process.program;
    const Communicator& ranks = call.process.ranks;
    agree(ranks, [&] { check_launch(call.process.facts->launch(), ranks.rank(), ranks.size()); });
    check_rank_count(call);
    if (arguments.np > 1 && !launched_by_mpi())
        return supervise_ranks({.np = arguments.np,
                                .oversubscribe = arguments.oversubscribe,
                                .words = call.words,
                                .folder = {},
                                .program = launched_program(program),
                                .hosts = {}});
    if (program.infer == nullptr) become_rank(rank_program(program), call.words, kept_cores());
    const InferResult result = program.infer(arguments.settings, call.process.ranks);
    if (call.process.ranks.is_root()) show(result);
    return 0;
}

void show_metrics(const InferArguments& arguments, const InferResult& result) {
    if (!arguments.confusion.empty()) write_file_atomically(arguments.confusion, result.confusion);
    std::string text = fmt::format(
        "samples       {}\ntest          {}\n", grouped(result.samples), result.evaluation.text);
    for (const auto& [name, value] : result.evaluation.metrics)
        text += fmt::format("{:<13} {:.6g}\n", name, value);
    if (!result.by_class.empty()) text += '\n' + result.by_class;
    print_once(text);
}

}  // namespace

Command eval_command() {
    auto arguments = std::make_shared<InferArguments>();
    return {.name = "eval",
            .summary = "measure a trained run on a data set",
            .usage = "lockstep eval RUN --data DIR [options]",
            .text =
                "Prints the metrics of the run's task over all samples, with its model, transform\n"
                "and newest checkpoint (or the moving average, if the run has --ema): the same\n"
                "bits on any number of ranks. Unset options of the data are the run's.\n\n"
                "Examples:\n"
                "  lockstep eval runs/a --data D/test\n"
                "  lockstep eval runs/b --data D --part held-out     # trained with --split 0.9\n"
                "  lockstep eval runs/a --data D/test --np 4 --confusion confusion.csv\n"
                "  lockstep eval runs/a --data D/test --weights a.safetensors\n",
            .table = table_of(*arguments,
                              path_option("confusion",
                                          "FILE",
                                          arguments->confusion,
                                          "CSV file to write the confusion matrix to")),
            .positionals = 1,
            .run = [arguments](const Invocation& call) {
                return run_infer(*arguments, call, [&](const InferResult& result) {
                    show_metrics(*arguments, result);
                });
            }};
}

Command predict_command() {
    auto arguments = std::make_shared<InferArguments>();
    return {
        .name = "predict",
        .summary = "write a trained model's outputs for a data set",
        .usage = "lockstep predict RUN --data DIR --out FILE.npy|FILE.h5 [options]",
        .text =
            "Writes the model's output for each sample, f32 in the order of the data set (or of\n"
            "its --part): logits of classes [n, K], of pixels [n, K, H, W] or of next tokens\n"
            "[n, T, K], or the numbers of a regression [n, K]. The data set needs no labels. The\n"
            "file is NPY, or HDF5 with one data set, predictions. The values are the same on any\n"
            "number of ranks.\n\n"
            "Examples:\n"
            "  lockstep predict runs/a --data D/new --out new.npy\n"
            "  lockstep predict runs/a --data D/new --out new.h5 --np 4\n"
            "  python3 -c \"import numpy; print(numpy.load('new.npy').argmax(1))\"\n",
        .table = table_of(
            *arguments,
            path_option(
                "out", "FILE", arguments->settings.outputs, "new file: .npy, .h5 or .hdf5")),
        .positionals = 1,
        .run = [arguments](const Invocation& call) {
            check_given(!arguments->settings.outputs.empty(),
                        "out",
                        "name a file: --out FILE.npy or --out FILE.h5");
            return run_infer(*arguments, call, [&](const InferResult& result) {
                print_once(fmt::format("{}: f32 [{}]\n",
                                       arguments->settings.outputs.string(),
                                       fmt::join(result.shape, ", ")));
            });
        }};
}

}  // namespace lockstep
