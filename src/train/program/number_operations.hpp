// SPDX-License-Identifier: Apache-2.0
// What Python computes with sizes between operators: "_operator.floordiv" and kin.
#pragma once

#include "program/program_graph.hpp"

#include <string_view>

namespace lockstep {

/// The operation of a node's target; nullptr: there is none of this name. Called with what its
/// values are; throws std::runtime_error where Python would or 64 bits do not hold the result.
NumberOperation number_operation(std::string_view target);

}  // namespace lockstep
