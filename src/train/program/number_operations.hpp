// SPDX-License-Identifier: Apache-2.0
// Python's arithmetic with sizes between operators: "_operator.floordiv" and similar.
#pragma once

#include "program/program_graph.hpp"

#include <string_view>

namespace lockstep {

/// Returns the operation of a node's target; nullptr: there is none of this name. It throws
/// std::runtime_error if Python would or if 64 bits do not hold the result.
NumberOperation number_operation(std::string_view target);

}  // namespace lockstep
