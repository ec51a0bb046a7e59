// SPDX-License-Identifier: Apache-2.0
// Exact evaluation: every sample once, in eval mode, without gradients.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/train/settings.hpp"

#include "model/model.hpp"
#include "task/input.hpp"

#include <cstdint>
#include <memory>

namespace lockstep {

/// Over all samples of a data set; the same bits on all ranks and for any number of them.
struct Evaluation {
    double loss = 0;
    std::int64_t correct = 0, samples = 0;
    double accuracy() const { return static_cast<double>(correct) / static_cast<double>(samples); }
};

/// Keeps a data set open for repeated evaluation, its first batches read ahead.
class Evaluator {
  public:
    Evaluator(std::shared_ptr<const DatasetIndex> index,
              const DatasetIndex& trained,
              const Communicator& ranks,
              LeafRange leaves,
              const TrainSettings& settings);

    /// Collective. The model's mode is put back to training afterwards.
    Evaluation run(Model& model);

  private:
    std::shared_ptr<const DatasetIndex> index_;
    Communicator ranks_;
    InputReader input_;
    BatchStream stream_;
    int virtual_ranks_;
};

}  // namespace lockstep
