// SPDX-License-Identifier: Apache-2.0
// All collectives over several nodes: shared memory inside, messages between owners of a stripe.
#pragma once

#include "lockstep/comm/collectives.hpp"

#include "hierarchical/nodes.hpp"

#include <memory>

namespace lockstep {

/// Collective over all ranks of `nodes`. Errors: E632.
std::unique_ptr<Collectives> make_hierarchical_collectives(Nodes nodes);

}  // namespace lockstep
