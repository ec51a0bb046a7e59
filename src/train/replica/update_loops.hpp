// SPDX-License-Identifier: Apache-2.0
// Where an optimizer's loops run: on the host, or on a GPU.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include "replica/update_launch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// All is done in the order of calls; on a GPU nobody waits for it. Sums, decisions and rates are
/// of the memory in which it is done.
class UpdateLoops {
  public:
    virtual ~UpdateLoops() = default;

    virtual void run(const UpdateLaunch& launch) = 0;

    /// So many exact sums (exact_words.hpp), of nothing so far. What was given before is void.
    virtual std::int64_t* sums(std::size_t count) = 0;

    /// Adds the square of each of `count` floats to `sum`.
    virtual void add_squares(std::int64_t* sum, const float* values, std::size_t count) = 0;

    /// Has `sum` say whether all of them are finite. What else it says is unspecified.
    virtual void add_nonfinite(std::int64_t* sum, const float* values, std::size_t count) {
        add_squares(sum, values, count);
    }

    /// Collective. Each of `count` sums becomes that over all `ranks`, in one message.
    virtual void sum_over(const Communicator& ranks, std::int64_t* sums, std::size_t count) = 0;

    /// `out` is the loops' own: what it returns, until the next call.
    virtual const UpdateDecision* decide(DecisionLaunch launch) = 0;
    virtual const float* own_rates(OwnRatesLaunch launch) = 0;

    /// Room for floats that are needed for a moment: who needs more takes parts one by one.
    virtual std::span<float> room() = 0;
};

/// Of this thread.
UpdateLoops& host_loops();

}  // namespace lockstep
