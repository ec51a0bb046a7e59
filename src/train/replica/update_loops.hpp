// SPDX-License-Identifier: Apache-2.0
// Where an optimizer's loops run: on the host, or on a GPU.
#pragma once

#include "lockstep/comm/exact_sum.hpp"

#include "replica/update_launch.hpp"

#include <cstddef>
#include <span>

namespace lockstep {

class UpdateLoops {
  public:
    virtual ~UpdateLoops() = default;

    /// In the order of calls.
    virtual void run(const UpdateLaunch& launch) = 0;

    /// Adds the square of each of `count` floats to `sum`.
    virtual void add_squares(ExactSum& sum, const float* values, std::size_t count) = 0;

    /// Room for floats that are needed for a moment: who needs more takes parts one by one.
    virtual std::span<float> room() = 0;
};

/// Of this thread.
UpdateLoops& host_loops();

}  // namespace lockstep
