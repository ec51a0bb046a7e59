// SPDX-License-Identifier: Apache-2.0
// Values that ranks compare before they exchange data, on any transport.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct LayoutSignature {
    std::uint64_t bits = 0;  ///< differ if anything differs on which an exchange depends
    std::string text;        ///< for a person
};

LayoutSignature signature_of(const FlatLayout& layout, const TreePlan& plan);

/// Returns an error with `code` that names the ranks whose bytes differ from the majority; nothing
/// if all are equal. `what`: rank 0's text for people.
std::optional<Error> difference_of(const std::vector<std::string>& given,
                                   const char* code,
                                   const std::string& what);

}  // namespace lockstep
