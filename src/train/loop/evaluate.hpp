// SPDX-License-Identifier: Apache-2.0
// Exact evaluation: every sample once, in eval mode, without gradients.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/content.hpp"
#include "lockstep/plan/settings.hpp"

#include "model/model.hpp"
#include "task/sample_feed.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// Keeps a data set open for repeated evaluation, its first batches read ahead.
class Evaluator {
  public:
    /// `kernels`: of the GPU where models are, see make_feed(). Borrows all.
    Evaluator(std::shared_ptr<const DatasetIndex> index,
              const DatasetIndex& trained,
              const Communicator& ranks,
              LeafRange leaves,
              const TrainSettings& settings,
              const Task& task,
              const SamplePart& part = {},
              const InputKernels* kernels = nullptr);

    /// Collective. Over all samples of the part; the same bits on all ranks and for any number of
    /// them. The model's mode is put back to training afterwards. Errors: E251.
    /// Waiting for the other ranks is counted as `clock`'s Phase::wait. A loss that is not finite
    /// is a warning, which names the sample if one is to blame.
    Evaluation run(Model& model, PhaseClock& clock);

    /// Collective. Looks at files without hashes again. Errors: E251.
    void check_files() const;

    /// The model's outputs for each sample of this rank's leaves, whose targets need not be there.
    using OutputSink = std::function<void(std::uint64_t sample, std::span<const float> values)>;
    void for_each_output(Model& model, const OutputSink& sink);

  private:
    std::int64_t steps() const;
    std::int64_t own_steps() const;
    std::uint64_t samples_after(std::int64_t step) const;
    void add(SampleSums& all, Model& model, const Batch& batch, std::int64_t step);
    TaskSums sums_of_leaves(Model& model);
    void warn_of_loss(double loss);
    std::string blame();

    std::shared_ptr<const DatasetIndex> index_;
    const Task& task_;
    Communicator ranks_;
    std::string inputs_;
    std::optional<std::string> blamed_;  ///< what blame() found, for it reads all samples
    InputReader input_;
    FileWatch watch_;
    int virtual_ranks_;
    std::int64_t samples_;               ///< of the part
    std::int64_t batch_;                 ///< samples that all leaves take at once
    std::optional<BatchStream> stream_;  ///< nothing: this rank has no leaves
    std::unique_ptr<SampleFeed> feed_;   ///< of `stream_`
};

}  // namespace lockstep
