// SPDX-License-Identifier: Apache-2.0
// Forward and backward of a rank's leaves, one by one or together.
#pragma once

#include "lockstep/core/clock.hpp"

#include "leaves/leaf_scope.hpp"
#include "replica/replica.hpp"
#include "task/task.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// What a loss is made of besides samples.
struct LossTerms {
    std::int64_t samples = 1;  ///< of the step: it is divided by these
    double scale = 1;          ///< of what backward is given
};

/// Whether what the graph tells of operators that are not known counts; for tests.
enum class Walk { counts, is_ignored };

/// Between begin_step() and finish() of the replica, or in a rehearsal. Borrows all.
class LeafPasses {
  public:
    LeafPasses(Replica& replica, const Task& task, PhaseClock& clock)
        : replica_(replica), task_(task), clock_(clock) {}

    /// The current leaf, in `parts` micro-batches.
    void compute(const LeafSamples& leaf, int parts, const LossTerms& terms);

    /// All leaves of `cut`, whose random numbers begin with `seeds`, the first of which has
    /// `wishes`. What stands in the way, nothing being done then: an operator's name, or "".
    [[nodiscard]] std::string compute_together(const LeafSamples& samples,
                                               const LeafCut& cut,
                                               const std::vector<std::uint64_t>& seeds,
                                               const LeafScalars& wishes,
                                               const LossTerms& terms);

    /// Computes leaves of `cut` of made-up samples both ways. What stands in the way of computing
    /// them together: "", an operator's name, that all at once would take more than `most_bytes`,
    /// or that bits differ.
    std::string rehearse(const ModelShape& shape,
                         const LeafCut& cut,
                         const LossTerms& terms,
                         std::uint64_t most_bytes,
                         Walk walk = Walk::counts);

    /// After a rehearsal in which nothing stood in the way: how many times as long as one leaf of
    /// all samples its leaves take together; nothing where finding out would take seconds.
    std::optional<double> price(const ModelShape& shape,
                                const LeafCut& cut,
                                const LossTerms& terms);

  private:
    std::string compare_ways(const ModelShape& shape,
                             const LeafCut& cut,
                             const LossTerms& terms,
                             std::uint64_t most_bytes);

    /// What tensors of one leaf take at once.
    std::uint64_t rehearse_one_by_one(const LeafSamples& samples,
                                      const LeafCut& cut,
                                      const std::vector<std::uint64_t>& seeds,
                                      const LossTerms& terms);
    std::string rehearse_together(const LeafSamples& samples,
                                  const LeafCut& cut,
                                  const std::vector<std::uint64_t>& seeds,
                                  const LossTerms& terms);

    Replica& replica_;
    const Task& task_;
    PhaseClock& clock_;
    Walk walk_ = Walk::counts;
    double together_s_ = 0;  ///< that a rehearsal took
    LeafVerdicts verdicts_;
};

/// What stands in the way of computing leaves of `cut` together, as far as the graph of a forward
/// pass over made-up samples tells, an operator's name, or "". Of the model's tensors all are as
/// before afterwards.
std::string leaves_obstacle(Model& model,
                            const Task& task,
                            const ModelShape& shape,
                            const LeafCut& cut);

/// Samples of several leaves as those of one.
LeafSamples joined(const std::vector<LeafSamples>& leaves);

}  // namespace lockstep
