// SPDX-License-Identifier: Apache-2.0
// Forward and backward of a rank's leaves, one by one or together.
#pragma once

#include "lockstep/core/clock.hpp"

#include "leaves/leaf_scope.hpp"
#include "replica/device_graph.hpp"
#include "replica/replica.hpp"
#include "task/task.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

namespace lockstep {

/// What a loss is made of besides samples.
struct LossTerms {
    std::int64_t samples = 1;  ///< of the step: it is divided by these
    double scale = 1;          ///< of what backward is given
};

/// Forward and backward of leaves of equal shapes on a GPU, recorded once and replayed: the host
/// issues two graphs instead of every kernel.
class CapturedPasses {
  public:
    /// What backward begins with; adds the loss to the replica's.
    using Forward = std::function<at::Tensor(const LeafSamples&, const LossTerms&)>;

    /// Borrows `replica` and `clock`, of a model on a GPU.
    CapturedPasses(Replica& replica, PhaseClock& clock, MakeDeviceGraph make, Forward forward);

    /// One backward pass over the replica's current leaf, or false where nothing was done: shapes
    /// that are met for the first time are computed as always, which prepares libraries for them;
    /// and after something that cannot be recorded, see why_not().
    [[nodiscard]] bool compute(const LeafSamples& samples, const LossTerms& terms);

    /// "" as long as nothing stood in the way.
    const std::string& why_not() const { return why_not_; }

    /// All recordings; they are of weights where they are now.
    void forget();

  private:
    /// All that a recording has in it for good: shapes, numbers, and places in memory.
    using Key = std::vector<std::uint64_t>;

    struct Recording {
        LeafSamples samples;  ///< where a replay finds them
        std::unique_ptr<DeviceGraph> forward, backward;
        std::vector<std::size_t> reached;  ///< parameters, as backward finishes them
    };

    Key key_of(const LeafSamples& samples, const LossTerms& terms) const;
    Recording record(const LeafSamples& samples, const LossTerms& terms);
    bool try_record(const Key& key, const LeafSamples& samples, const LossTerms& terms);
    void replay(Recording& recording, const LeafSamples& samples);

    Replica& replica_;
    PhaseClock& clock_;
    MakeDeviceGraph make_;
    Forward forward_;
    c10::Stream stream_;  ///< of recordings: none may be on the default one
    std::set<Key> seen_;
    std::map<Key, Recording> recordings_;
    std::string why_not_;
};

/// What a rehearsal of recorded leaves tells.
struct CaptureVerdict {
    std::string why_not;                ///< reason; "": they give the same bits
    double computed = 0, replayed = 0;  ///< samples per second of a leaf; 0: not measured

    /// Returns the samples per second of `leaves` leaves, of which `computed_leaves` are computed.
    double speed(int leaves, int computed_leaves) const;
};

/// Samples per second of a rank's forward and backward passes.
struct LeafSpeed {
    double together = 0;  ///< leaves computed together
    double as_one = 0;    ///< all as one leaf
};

/// Permission to record and replay a leaf. Not if other ranks wait for its gradients, which are
/// reported at the end only.
enum class Capture { no, yes };

/// Use of the graph's result on unknown operators; for tests.
enum class Walk { counts, is_ignored };

/// Computes leaves between begin_step() and finish() of the replica, or in a rehearsal. Borrows
/// all.
class LeafPasses {
  public:
    LeafPasses(Replica& replica, const Task& task, PhaseClock& clock)
        : replica_(replica), task_(task), clock_(clock) {}

    /// Computes the current leaf, in `parts` micro-batches.
    void compute(const LeafSamples& leaf,
                 int parts,
                 const LossTerms& terms,
                 Capture capture = Capture::no);

    /// Permits recording and replay from now on, if a leaf of `rows` generated samples then has the
    /// same bits. Returns the obstacle, or the times.
    CaptureVerdict rehearse_capture(MakeDeviceGraph make,
                                    const ModelShape& shape,
                                    std::int64_t rows,
                                    int parts,
                                    const LossTerms& terms);
    void end_capture() { captured_.reset(); }

    /// Returns the event that has ended recording since; "": none.
    std::string capture_obstacle() const { return captured_ ? captured_->why_not() : ""; }

    /// Computes all leaves of `cut`, whose random numbers begin with `seeds`; the first leaf has
    /// `wishes`. Returns the obstacle, an operator's name, in which case nothing is done; or "".
    [[nodiscard]] std::string compute_together(const LeafSamples& samples,
                                               const LeafCut& cut,
                                               const std::vector<std::uint64_t>& seeds,
                                               const LeafScalars& wishes,
                                               const LossTerms& terms);

    /// Computes leaves of `cut` of generated samples both ways. Returns the obstacle to computing
    /// them together: "", an operator's name, that all at once would take more than `most_bytes`,
    /// or that bits differ.
    std::string rehearse(const ModelShape& shape,
                         const LeafCut& cut,
                         const LossTerms& terms,
                         std::uint64_t most_bytes,
                         Walk walk = Walk::counts);

    /// Returns the speed of leaves after a rehearsal without obstacles; nothing if the measurement
    /// would take seconds.
    std::optional<LeafSpeed> speed(const ModelShape& shape,
                                   const LeafCut& cut,
                                   const LossTerms& terms);

  private:
    at::Tensor forward(const LeafSamples& samples, const LossTerms& terms);
    void backward(const at::Tensor& value, std::int64_t rows, int parts);
    std::string compare_captured(const LeafSamples& samples, int parts, const LossTerms& terms);
    void rehearse_one(const LeafSamples& leaf,
                      int parts,
                      const LossTerms& terms,
                      std::uint64_t seed,
                      Capture capture);
    std::string compare_ways(const ModelShape& shape,
                             const LeafCut& cut,
                             const LossTerms& terms,
                             std::uint64_t most_bytes);

    /// Returns the peak memory of tensors of one leaf.
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
    double together_s_ = 0;  ///< time of a rehearsal
    std::unique_ptr<CapturedPasses> captured_;
    LeafVerdicts verdicts_;
};

/// Returns the obstacle to computing leaves of `cut` together, an operator's name, or "", as far as
/// the graph of a forward pass over generated samples shows it. The model's tensors are unchanged
/// afterwards.
std::string leaves_obstacle(Model& model,
                            const Task& task,
                            const ModelShape& shape,
                            const LeafCut& cut);

/// Returns the samples of several leaves as those of one.
LeafSamples joined(const std::vector<LeafSamples>& leaves);

}  // namespace lockstep
