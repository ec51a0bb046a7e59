// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/infer.hpp"

#include "lockstep/comm/agree.hpp"

#include "loop/evaluate.hpp"
#include "loop/output_file.hpp"
#include "loop/trained_run.hpp"

#include <algorithm>

namespace lockstep {

InferResult infer(const InferSettings& settings, const Communicator& ranks) {
    agree(ranks, [&] {
        if (!settings.outputs.empty()) output_format(settings.outputs);
    });
    const TrainedRun trained = open_trained_run(settings, ranks);
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
