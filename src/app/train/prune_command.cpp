// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/launch/mpirun.hpp"
#include "lockstep/train/prune.hpp"

#include "command.hpp"
#include "option_groups.hpp"

#include <memory>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string count_text(std::int64_t count) {
    return grouped(static_cast<std::uint64_t>(count));
}

void show(const PruneSettings& settings, const PruneResult& result) {
    const PrunedSide &before = result.before, &after = result.after;
    print_once(
        fmt::format("channels    {} -> {}\n", before.channels, after.channels) +
        fmt::format(
            "parameters  {} -> {}\n", count_text(before.parameters), count_text(after.parameters)) +
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
              {path_option("out", "FILE", settings->output, "new safetensors file"),
               real_option(
                   "keep", settings->keep, {1e-3, 1}, "share of each layer's channels to keep")}},
             weights_group(settings->weights, settings->train_data)},
        .positionals = 1,
        .run = [settings](const Invocation& call) { return run(*settings, call); }};
}

}  // namespace lockstep
