// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds ranks that call different things before they hang in them.
#pragma once

#include "lockstep/comm/collectives.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"

#include <cstdint>
#include <memory>

namespace lockstep {

/// Collective. 64 bits that stand for what all ranks are about to do alike, as `what` says.
/// Errors, on all ranks: `code`, naming the ranks that differ from most.
void agree_on_signature(const Communicator& ranks,
                        std::uint64_t signature,
                        const char* code,
                        const std::string& what);

/// Collective. Errors: E662 naming the ranks whose layout or plan differs.
void agree_on_layout(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan);

/// Collective. Debug mode: each (operation, size, type, root) that a rank has not called before is
/// compared over a communicator of its own first: Error E661 instead of a hang or wrong sums. A
/// rank that calls something known while others call something new is found by the watchdog.
std::unique_ptr<Collectives> signature_checked(std::unique_ptr<Collectives> collectives,
                                               const Communicator& ranks);

}  // namespace lockstep
