// SPDX-License-Identifier: Apache-2.0
// Values that ranks compare before they exchange data, on any transport.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Returns a hash of all on which an exchange depends, and a text for a person.
std::string layout_signature(const FlatLayout& layout, const TreePlan& plan);

/// Returns E662 naming the ranks whose `signatures`, by rank, differ from the majority's; nothing
/// if all are equal.
std::optional<Error> layout_difference(const std::vector<std::string>& signatures);

}  // namespace lockstep
