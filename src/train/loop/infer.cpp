// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/infer.hpp"

#include "lockstep/comm/agree.hpp"

#include "loop/evaluate.hpp"
#include "loop/output_file.hpp"
#include "loop/trained_run.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Samples are cut as the run's own evaluations cut them: kernels may give other bits for another
// number of rows. Ranks beyond its virtual ones have nothing to do.
LeafRange leaves_here(const Communicator& ranks, int virtual_ranks) {
    const int busy = std::min(ranks.size(), virtual_ranks);
    if (ranks.rank() >= busy) return {virtual_ranks, virtual_ranks};
    return leaves_of(ranks.rank(), busy, virtual_ranks);
}

}  // namespace

InferResult infer(const InferSettings& settings, const Communicator& ranks) {
    agree(ranks, [&] {
        if (!settings.outputs.empty()) output_format(settings.outputs);
    });
    const TrainedRun trained = open_trained_run(settings, ranks);
    const TrainSettings& learned = trained.run.settings;
    Evaluator evaluator(trained.data,
                        *trained.learned_from,
                        ranks,
                        leaves_here(ranks, learned.virtual_ranks),
                        learned,
                        *trained.task);
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
    evaluator.check_files();
    file.finish();
    return result;
}

}  // namespace lockstep
