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
#include "task/input.hpp"

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>

namespace lockstep {

/// Samples of which an output of the model is NaN.
struct NanOutputs {
    std::int64_t count = 0;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();  ///< least number of them
};

/// Keeps a data set open for repeated evaluation, its first batches read ahead.
class Evaluator {
  public:
    /// `kernels`: those of the models' GPU, see make_feed(). Borrows all.
    Evaluator(std::shared_ptr<const DatasetIndex> index,
              const DatasetIndex& trained,
              const Communicator& ranks,
              LeafRange leaves,
              const TrainSettings& settings,
              const Task& task,
              const SamplePart& part = {},
              const InputKernels* kernels = nullptr);

    /// Collective. Evaluates all samples of the part, with the same bits on all ranks and for any
    /// number of them. The model returns to training mode afterwards. Errors: E251. Waiting for the
    /// other ranks counts as `clock`'s Phase::wait. A loss that is not finite gives a warning,
    /// which names the sample if one is the cause.
    Evaluation run(Model& model, PhaseClock& clock);

    /// Collective. Checks that files without hashes have not changed. Errors: E251.
    void check_files() const;

    /// `sink` receives what `form` makes of the model's outputs, f32 [n, ...] on the host, for each
    /// sample of this rank's leaves; targets need not exist. Returns the samples of this rank whose
    /// outputs have a NaN before `form`.
    using OutputForming = std::function<at::Tensor(const at::Tensor& outputs)>;
    using OutputSink = std::function<void(std::uint64_t sample, std::span<const std::byte> values)>;
    NanOutputs for_each_output(Model& model, const OutputForming& form, const OutputSink& sink);

  private:
    std::int64_t steps() const { return (samples_ + batch_ - 1) / batch_; }
    std::int64_t own_steps() const { return stream_ ? steps() : 0; }
    std::uint64_t samples_after(std::int64_t step) const;
    void add(SampleSums& all, Model& model, const Batch& batch, std::int64_t step);
    TaskSums sums_of_leaves(Model& model);
    std::string blame();

    std::shared_ptr<const DatasetIndex> index_;
    const Task& task_;
    Communicator ranks_;
    std::string inputs_;
    std::optional<std::string> blamed_;  ///< result of blame(), which reads all samples
    InputReader input_;
    FileWatch watch_;
    int virtual_ranks_;
    std::int64_t samples_;               ///< samples of the part
    std::int64_t batch_;                 ///< samples of all leaves in one pass
    std::optional<BatchStream> stream_;  ///< nothing: this rank has no leaves
    std::unique_ptr<SampleFeed> feed_;   ///< feed of `stream_`
};

}  // namespace lockstep
