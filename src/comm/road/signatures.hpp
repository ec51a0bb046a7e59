// SPDX-License-Identifier: Apache-2.0
// What ranks compare before they do something together, whatever carries it between them.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/error.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// Of a layout and a plan.
struct LayoutSignature {
    std::uint64_t bits = 0;  ///< differ where anything differs that an exchange depends on
    std::string text;        ///< for a person
};

LayoutSignature signature_of(const FlatLayout& layout, const TreePlan& plan);

/// An error with `code` that names the ranks whose bytes differ from most; nothing where all gave
/// the same. `what`: rank 0's, for a person.
std::optional<Error> difference_of(const std::vector<std::string>& given,
                                   const char* code,
                                   const std::string& what);

}  // namespace lockstep
