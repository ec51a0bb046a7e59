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

// Where the outputs of a part's samples go: one behind the other, by number.
class RowsOfPart {
  public:
    RowsOfPart(std::uint64_t samples, const SamplePart& part) : part_(part) {
        if (part.side == SamplePart::Side::all) return;
        for (std::uint64_t sample = 0; sample < samples; ++sample)
            if (part.holds(sample)) samples_.push_back(sample);
    }
    std::uint64_t of(std::uint64_t sample) const {
        if (part_.side == SamplePart::Side::all) return sample;
        const auto found = std::ranges::lower_bound(samples_, sample);
        return static_cast<std::uint64_t>(found - samples_.begin());
    }

  private:
    SamplePart part_;
    std::vector<std::uint64_t> samples_;
};

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
                        *trained.task,
                        trained.part);
    InferResult result{.evaluation = {},
                       .confusion = {},
                       .samples = samples_in(trained.data->blocks(), trained.part),
                       .shape = {}};
    if (settings.outputs.empty()) {
        PhaseClock clock;
        const Evaluation found = evaluator.run(*trained.model, clock);
        result.evaluation = {found.metrics, found.text};
        result.confusion = found.confusion;
        return result;
    }
    result.shape = trained.task->output_shape();
    result.shape.insert(result.shape.begin(), static_cast<std::int64_t>(result.samples));
    OutputFile file(ranks, settings.outputs, result.shape);
    const RowsOfPart rows(trained.data->samples(), trained.part);
    evaluator.for_each_output(*trained.model,
                              [&](std::uint64_t sample, std::span<const float> values) {
                                  file.write(rows.of(sample), values);
                              });
    evaluator.check_files();
    file.finish();
    return result;
}

}  // namespace lockstep
