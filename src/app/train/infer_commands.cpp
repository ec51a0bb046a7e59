// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/launch_facts.hpp"
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/launch/bind_rank.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/launch/supervise.hpp"
#include "lockstep/train/infer.hpp"

#include "command.hpp"
#include "option_groups.hpp"
#include "rank_count.hpp"

#include <algorithm>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

struct InferArguments {
    InferSettings settings;
    int np = 1;
    bool oversubscribe = false;
    std::filesystem::path confusion;
};

OptionSection common_options(InferArguments& arguments) {
    InferSettings& settings = arguments.settings;
    std::vector<Option> options =
        joined({data_option("data", settings.data, "data to read, as for train")},
               foreign_options(settings.fields, settings.follows_links, "; unset: the run's"));
    options = joined(
        std::move(options),
        {choice_option<RunPart>(
             "part",
             settings.part,
             {{"all", RunPart::all}, {"train", RunPart::trained}, {"held-out", RunPart::held_out}},
             "samples to use of a run with --split, whose training data --data names: train, those "
             "it was trained on; held-out, those it was tested on"),
         path_option("weights",
                     "FILE",
                     settings.weights,
                     "safetensors file to use; unset: the run's newest checkpoint"),
         list_option("channels",
                     "N[,N]",
                     settings.channels,
                     "channels of --weights that 'lockstep prune' wrote"),
         data_option(
             "train-data",
             settings.train_data,
             "new place of the run's training data, whose statistics are used to normalise")});
    return {"What",
            joined(std::move(options), rank_options(arguments.np, arguments.oversubscribe, 1))};
}

/// Starts ranks, becomes one that carries LibTorch, or calls `show` with what was found.
int run_infer(InferArguments& arguments,
              const Invocation& call,
              const std::function<void(const InferResult&)>& show) {
    arguments.settings.run = call.positionals[0];
    check(!arguments.settings.data.empty(),
          [] { return Error("E105", "--data is missing", "", "name a data set: --data DIR"); });
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
    print_once(text);
}

}  // namespace

Command eval_command() {
    auto arguments = std::make_shared<InferArguments>();
    OptionSection options = common_options(*arguments);
    options.options.push_back(path_option(
        "confusion", "FILE", arguments->confusion, "CSV file to write the confusion matrix to"));
    return {.name = "eval",
            .summary = "measure a trained run on a data set",
            .usage = "lockstep eval RUN --data DIR [options]",
            .text =
                "Prints the metrics of the run's task over all samples, with its model, transform\n"
                "and newest checkpoint (or the moving average, if the run has --ema): the same\n"
                "bits on any number of ranks.\n\n"
                "Examples:\n"
                "  lockstep eval runs/a --data D/test\n"
                "  lockstep eval runs/b --data D --part held-out     # trained with --split 0.9\n"
                "  lockstep eval runs/a --data D/test --np 4 --confusion confusion.csv\n"
                "  lockstep eval runs/a --data D/test --weights a.safetensors\n",
            .table = {options},
            .positionals = 1,
            .run = [arguments](const Invocation& call) {
                return run_infer(*arguments, call, [&](const InferResult& result) {
                    show_metrics(*arguments, result);
                });
            }};
}

Command predict_command() {
    auto arguments = std::make_shared<InferArguments>();
    OptionSection options = common_options(*arguments);
    options.options.push_back(
        path_option("out", "FILE", arguments->settings.outputs, "new file: .npy, .h5 or .hdf5"));
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
        .table = {options},
        .positionals = 1,
        .run = [arguments](const Invocation& call) {
            check(!arguments->settings.outputs.empty(), [] {
                return Error(
                    "E105", "--out is missing", "", "name a file: --out FILE.npy or --out FILE.h5");
            });
            return run_infer(*arguments, call, [&](const InferResult& result) {
                print_once(fmt::format("{}: f32 [{}]\n",
                                       arguments->settings.outputs.string(),
                                       fmt::join(result.shape, ", ")));
            });
        }};
}

}  // namespace lockstep
