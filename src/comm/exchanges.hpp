// SPDX-License-Identifier: Apache-2.0
// The back ends behind make_exchange().
#pragma once

#include "lockstep/comm/exchange.hpp"

#include <memory>

namespace lockstep {

/// One rank: slots and values are private, reduce() only merges this rank's own partials.
std::unique_ptr<Exchange> make_single_exchange(const FlatLayout& layout, const TreePlan& plan);

/// Collective. Ranks of one node: slots and values live in one shared window, every rank sums its
/// stripe straight from its peers' slots.
std::unique_ptr<Exchange> make_shared_exchange(const Communicator& ranks,
                                               const FlatLayout& layout,
                                               const TreePlan& plan);

/// Collective. Ranks anywhere: partials of a stripe are sent to its owner, values are gathered.
std::unique_ptr<Exchange> make_mpi_exchange(const Communicator& ranks,
                                            const FlatLayout& layout,
                                            const TreePlan& plan);

}  // namespace lockstep
