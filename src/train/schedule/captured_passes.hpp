// SPDX-License-Identifier: Apache-2.0
// Forward and backward of leaves of equal shapes on a GPU, recorded once and replayed: the host
// starts two graphs instead of every kernel.
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

/// The numbers of a loss besides samples.
struct LossTerms {
    std::int64_t samples = 1;  ///< samples of the step: the divisor
    double scale = 1;          ///< factor before backward
};

class CapturedPasses {
  public:
    /// Returns the tensor with which backward begins; adds the loss to the replica's.
    using Forward = std::function<at::Tensor(const LeafSamples&, const LossTerms&)>;

    /// Borrows `replica` and `clock`; the model is on a GPU.
    CapturedPasses(Replica& replica, PhaseClock& clock, MakeDeviceGraph make, Forward forward);

    /// Computes one backward pass over the replica's current leaf. Returns false if nothing was
    /// done. That is so for shapes met for the first time, which are computed in the usual way to
    /// prepare libraries, and after something that cannot be recorded: see why_not().
    [[nodiscard]] bool compute(const LeafSamples& samples, const LossTerms& terms);

    /// Returns the reason; "": there is none.
    const std::string& why_not() const { return why_not_; }

    /// Discards all recordings, because they use the weights' present addresses.
    void forget();

  private:
    /// All that is fixed in a recording: shapes, numbers, and addresses.
    using Key = std::vector<std::uint64_t>;

    struct Recording {
        LeafSamples samples;  ///< samples at the place where a replay reads them
        std::unique_ptr<DeviceGraph> forward, backward;
        std::vector<std::size_t> reached;  ///< parameters, in the order of backward
    };

    Key key_of(const LeafSamples& samples, const LossTerms& terms) const;
    Recording record(const LeafSamples& samples, const LossTerms& terms);
    bool try_record(const Key& key, const LeafSamples& samples, const LossTerms& terms);
    void replay(Recording& recording, const LeafSamples& samples);

    Replica& replica_;
    PhaseClock& clock_;
    MakeDeviceGraph make_;
    Forward forward_;
    c10::Stream stream_;  ///< stream for recordings, which must not be the default one
    std::set<Key> seen_;
    std::map<Key, Recording> recordings_;
    std::string why_not_;
};

}  // namespace lockstep
