// SPDX-License-Identifier: Apache-2.0
// Forward and backward of leaves of equal shapes on a GPU, recorded once and replayed: the host
// issues two graphs instead of every kernel.
#pragma once

#include "lockstep/core/clock.hpp"

#include "replica/device_graph.hpp"
#include "replica/replica.hpp"
#include "task/task.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
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

}  // namespace lockstep
