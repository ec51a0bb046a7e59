// SPDX-License-Identifier: Apache-2.0
#include "loop/evaluate.hpp"

#include "lockstep/core/error.hpp"

#include "loop/data_feed.hpp"
#include "task/loss.hpp"

#include <numeric>
#include <vector>

#include <ATen/core/grad_mode.h>

namespace lockstep {
namespace {

constexpr std::int64_t rows_per_leaf = 250;  // part of the contract: kernels may depend on it

StreamOptions evaluation_stream(LeafRange leaves, const TrainSettings& settings) {
    StreamOptions options = stream_options(settings);
    options.order = OrderKind::sequential;
    options.batch = rows_per_leaf * settings.virtual_ranks;
    options.first_leaf = leaves.begin;
    options.last_leaf = leaves.end;
    return options;
}

// Puts the model into eval mode and back.
class EvalMode {
  public:
    explicit EvalMode(Model& model) : model_(model) { model_.set_mode(ModelMode::evaluate); }
    ~EvalMode() { model_.set_mode(ModelMode::train); }
    EvalMode(const EvalMode&) = delete;
    EvalMode& operator=(const EvalMode&) = delete;

  private:
    Model& model_;
    at::NoGradGuard no_grad_;
};

struct LeafScore {
    double loss = 0;
    std::int64_t correct = 0;
};

LeafScore score(Model& model, const LeafInput& input) {
    const at::Tensor logits = only(model.forward({{"images", input.images}}));
    return {summed_loss(logits, input).item<float>(), count_correct(logits, input)};
}

}  // namespace

Evaluator::Evaluator(std::shared_ptr<const DatasetIndex> index,
                     const DatasetIndex& trained,
                     const Communicator& ranks,
                     LeafRange leaves,
                     const TrainSettings& settings)
    : index_(std::move(index)),
      ranks_(ranks),
      input_(evaluation_input(*index_, trained, settings)),
      stream_(index_, evaluation_stream(leaves, settings)),
      virtual_ranks_(settings.virtual_ranks) {}

Evaluation Evaluator::run(Model& model) {
    const EvalMode mode(model);
    const auto samples = static_cast<std::int64_t>(index_->samples());
    const std::int64_t batch = rows_per_leaf * virtual_ranks_;
    const std::int64_t steps = (samples + batch - 1) / batch;
    // One element for each leaf of each step: filled by one rank, so that their sum is exact.
    std::vector<double> losses(static_cast<std::size_t>(steps * virtual_ranks_), 0.0);
    std::int64_t counts[2] = {0, 0};
    for (std::int64_t step = 0; step < steps; ++step) {
        const Batch part = stream_.next();
        for (const LeafRows& leaf : part.leaves) {
            if (leaf.rows == 0) continue;
            const LeafScore found = score(model, input_.read(part, leaf));
            losses[static_cast<std::size_t>(step * virtual_ranks_ + leaf.leaf)] = found.loss;
            counts[0] += found.correct;
            counts[1] += static_cast<std::int64_t>(leaf.rows);
        }
    }
    ranks_.all_reduce_sum(std::span(losses));
    ranks_.all_reduce_sum(std::span<std::int64_t>(counts));
    expect(counts[1] == samples, "evaluation counts every sample once");
    const double loss = std::accumulate(losses.begin(), losses.end(), 0.0);
    return {loss / static_cast<double>(samples), counts[0], samples};
}

}  // namespace lockstep
