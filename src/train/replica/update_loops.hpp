// SPDX-License-Identifier: Apache-2.0
// The loops of an optimizer, on the host or on a GPU.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include "replica/update_launch.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep {

/// All work is done in the order of calls; on a GPU the host does not wait for it. Sums, decisions
/// and rates are in the memory of the executing device.
class UpdateLoops {
  public:
    virtual ~UpdateLoops() = default;

    /// No launch uses what another one writes.
    virtual void run(std::span<const UpdateLaunch> launches) = 0;

    /// Returns `count` exact sums (exact_words.hpp) that are zero. Earlier sums become invalid.
    virtual std::int64_t* sums(std::size_t count) = 0;

    /// Adds the square of each of `count` floats to `sum`.
    virtual void add_squares(std::int64_t* sum, const float* values, std::size_t count) = 0;

    /// Makes `sum` show whether all values are finite. Its value is otherwise unspecified.
    virtual void add_nonfinite(std::int64_t* sum, const float* values, std::size_t count) = 0;

    /// Collective. Replaces each of `count` sums by that over all `ranks`, in one message.
    virtual void sum_over(const Communicator& ranks, std::int64_t* sums, std::size_t count) = 0;

    /// Makes the decision; `out` is the loops' own: the result is valid until the next call.
    virtual const UpdateDecision* decide(DecisionLaunch launch) = 0;
    virtual const float* own_rates(OwnRatesLaunch launch) = 0;

    /// Returns room for temporary floats; larger needs are processed in parts.
    virtual std::span<float> room() = 0;
};

/// Returns the loops of this thread.
UpdateLoops& host_loops();

}  // namespace lockstep
