// SPDX-License-Identifier: Apache-2.0
/// @file
/// The offsets between the clocks of nodes.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include <functional>

namespace lockstep {

/// The offset of this node's clock from rank 0's.
struct ClockOffset {
    double ahead_s = 0;  ///< its time minus that of rank 0 at the same moment
    double error_s = 0;  ///< the true offset is within `ahead_s` +- `error_s`
};

/// Collective over `ranks`; `node` are those that share a clock with this one. The first rank of
/// each node asks rank 0 for its time a few times and keeps the quickest answer (Cristian,
/// "Probabilistic clock synchronization", 1989). Rank 0 read its clock between question and answer,
/// so half of that time bounds the error. Rank 0 serves one node after the other: well below a
/// millisecond each. `clock`: seconds, the same kind on every rank.
ClockOffset measure_clock_offset(const Communicator& ranks,
                                 const Communicator& node,
                                 const std::function<double()>& clock);

}  // namespace lockstep
