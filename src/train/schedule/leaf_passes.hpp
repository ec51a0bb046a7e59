// SPDX-License-Identifier: Apache-2.0
// Forward and backward of a rank's leaves, one by one or together, and the memory that they take.
#pragma once

#include "lockstep/core/clock.hpp"

#include "leaves/leaf_graph.hpp"
#include "leaves/leaf_scope.hpp"
#include "replica/device_graph.hpp"
#include "replica/replica.hpp"
#include "task/task.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>
#include <c10/util/ThreadLocalDebugInfo.h>

namespace lockstep {

/// Counts the bytes of this thread's tensors that are made during its lifetime. Not within another
/// profiler.
class PeakMemory {
  public:
    std::uint64_t bytes() const { return counter_->peak; }  ///< the most so far

  private:
    struct Counter : c10::MemoryReportingInfoBase {
        void reportMemoryUsage(
            void* place, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override {
            if (bytes > 0) {
                sizes[place] = static_cast<std::uint64_t>(bytes);
                live += static_cast<std::uint64_t>(bytes);
                peak = std::max(peak, live);
            } else if (const auto freed = sizes.find(place); freed != sizes.end()) {
                live -= freed->second;
                sizes.erase(freed);
            }
        }
        bool memoryProfilingEnabled() const override { return true; }

        std::unordered_map<const void*, std::uint64_t> sizes;
        std::uint64_t live = 0, peak = 0;
    };

    const std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
    const c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

/// Finds requests for memory of `device` that failed during its lifetime although no operator did.
/// A convolution whose workspace gets no memory takes another kernel, which has other bits:
/// docs/decisions/0020-kernels-of-cudnn.md.
class FailedAllocations {
  public:
    explicit FailedAllocations(c10::Device device) : device_(device), before_(count()) {}

    bool any() const { return count() != before_; }

    /// Throws c10::OutOfMemoryError if there were any.
    void check_none() const {
        TORCH_CHECK_WITH(OutOfMemoryError,
                         !any(),
                         "a convolution got no memory for its workspace and took another kernel, "
                         "which has other bits");
    }

  private:
    std::int64_t count() const {
        if (device_.is_cpu()) return 0;
        return c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).num_ooms;
    }

    const c10::Device device_;
    const std::int64_t before_;
};

/// What a loss is made of besides samples.
struct LossTerms {
    std::int64_t samples = 1;  ///< of the step: it is divided by these
    double scale = 1;          ///< of what backward is given
};

/// A pass over a leaf, or over leaves together, on a GPU, recorded once and replayed: the host
/// issues two graphs instead of every kernel.
class CapturedPasses {
  public:
    struct Recording {
        LeafSamples samples;  ///< where a replay finds them
        std::unique_ptr<DeviceGraph> forward, backward;
        std::vector<std::size_t> reached;  ///< parameters, as backward finishes them
        std::vector<LeafResult> results;   ///< of leaves together: where a replay puts them
        LeafBuffers buffers;               ///< the same
        std::vector<at::Generator> draws;  ///< of leaves together, each one's
    };

    /// What is recorded. Each part finds the samples in the recording.
    struct Pass {
        std::function<void(Recording&)> before;  ///< what must not be recorded
        std::function<void(Recording&)> forward, backward;
    };

    /// Borrows `replica` and `clock`, of a model on a GPU.
    CapturedPasses(Replica& replica, PhaseClock& clock, MakeDeviceGraph make);

    /// Returns a recording of `pass` over `leaves` leaves, or null where the pass is to be
    /// computed: the first time of its shapes, which prepares libraries for them; and after
    /// something that cannot be recorded, see why_not().
    Recording* find(const LeafSamples& samples,
                    const LossTerms& terms,
                    std::int64_t leaves,
                    const Pass& pass);

    /// Over these samples. `seeds`: those of leaves together.
    void replay(Recording& recording,
                const LeafSamples& samples,
                std::span<const std::uint64_t> seeds = {});

    /// "" as long as nothing stood in the way.
    const std::string& why_not() const { return why_not_; }

    /// All recordings; they are of weights where they are now.
    void forget();

  private:
    /// All that a recording has in it for good: shapes, numbers, and places in memory.
    using Key = std::vector<std::uint64_t>;

    Key key_of(const LeafSamples& samples, const LossTerms& terms, std::int64_t leaves) const;
    Recording record(const LeafSamples& samples, const Pass& pass);
    bool try_record(const Key& key, const LeafSamples& samples, const Pass& pass);

    Replica& replica_;
    PhaseClock& clock_;
    MakeDeviceGraph make_;
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

/// The passes that are recorded.
enum class CaptureWay { one_by_one, together };

/// Use of the graph's result on unknown operators; for tests.
enum class Walk { counts, is_ignored };

/// Leaves that are computed together.
struct JoinedLeaves {
    LeafSamples samples;
    LeafCut cut;
    std::vector<std::uint64_t> seeds;  ///< of each leaf's random numbers
    LossTerms terms;
};

/// Computes leaves between begin_step() and finish() of the replica, or in a rehearsal, of
/// generated samples. Borrows all.
class LeafPasses {
  public:
    LeafPasses(Replica& replica, const Task& task, const ModelShape& shape, PhaseClock& clock)
        : replica_(replica), task_(task), shape_(shape), clock_(clock) {}

    /// Computes the current leaf, in `parts` micro-batches.
    void compute(const LeafSamples& leaf,
                 int parts,
                 const LossTerms& terms,
                 Capture capture = Capture::no);

    /// Call before choose_capture(). Tries recording and replay of leaves of `cut`, in `parts`
    /// micro-batches. Returns the obstacle, or the speeds. Bits are compared.
    CaptureVerdict rehearse_capture(const MakeDeviceGraph& make,
                                    CaptureWay way,
                                    const LeafCut& cut,
                                    int parts,
                                    const LossTerms& terms);

    /// Passes of `way`, whose rehearsal found no obstacle, are recorded and replayed from now on.
    /// Nothing: none are.
    void choose_capture(std::optional<CaptureWay> way);

    /// Returns the event that has ended recording since; "": none.
    std::string capture_obstacle() const { return captured_ ? captured_->why_not() : ""; }

    /// Computes all leaves; the first one has `wishes`. Returns the obstacle, an operator's name,
    /// in which case nothing is done; or "".
    [[nodiscard]] std::string compute_together(const JoinedLeaves& leaves,
                                               const LeafScalars& wishes,
                                               Capture capture = Capture::no);

    /// Computes leaves of `cut` both ways. Returns the obstacle to computing them together: "", an
    /// operator's name, that all at once would take more than `most_bytes`, or that bits differ.
    std::string rehearse(const LeafCut& cut,
                         const LossTerms& terms,
                         std::uint64_t most_bytes,
                         Walk walk = Walk::counts);

    /// Returns the hash of a leaf of `rows` samples, which kernels decide.
    std::string leaf_hash(std::int64_t rows, const LossTerms& terms);

    /// Returns the speed of leaves after a rehearsal without obstacles; nothing if the measurement
    /// would take seconds.
    std::optional<LeafSpeed> speed(const LeafCut& cut, const LossTerms& terms);

  private:
    using Recording = CapturedPasses::Recording;

    at::Tensor forward(const LeafSamples& samples, const LossTerms& terms);
    void backward(const at::Tensor& value, std::int64_t rows, int parts);
    std::vector<at::Tensor> forward_together(const LeafSamples& samples,
                                             const JoinedLeaves& leaves,
                                             std::vector<LeafResult>& results);
    void backward_together(const std::vector<at::Tensor>& losses,
                           LeafGraph& graph,
                           const LeafSums& sums);
    Recording* recorded(const LeafSamples& samples, const LossTerms& terms);
    Recording* recorded_together(const JoinedLeaves& leaves);

    JoinedLeaves blank_leaves(const LeafCut& cut, const LossTerms& terms) const;
    std::uint64_t rehearse_one_by_one(const JoinedLeaves& leaves);
    std::string rehearse_together(const JoinedLeaves& leaves, Capture capture = Capture::no);
    std::string rehearsed(const std::function<std::string()>& work);
    std::string compare_ways(const JoinedLeaves& leaves, std::uint64_t most_bytes);

    /// A pass in a rehearsal, over one of two sets of samples.
    using RehearsedPass = std::function<void(std::size_t which, Capture capture)>;
    std::string compare_captured(const RehearsedPass& pass);

    Replica& replica_;
    const Task& task_;
    const ModelShape& shape_;  ///< of the model's inputs
    PhaseClock& clock_;
    Walk walk_ = Walk::counts;
    double together_s_ = 0;  ///< time of a rehearsal
    MakeDeviceGraph make_graph_;
    std::unique_ptr<CapturedPasses> captured_;
    std::optional<CaptureWay> captured_way_;
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
