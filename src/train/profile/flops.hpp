// SPDX-License-Identifier: Apache-2.0
// How many multiplications and additions an operator's call takes, by the shapes of its arguments.
#pragma once

#include <cstdint>
#include <string_view>

#include <ATen/core/ivalue.h>

namespace lockstep {

/// Arguments in the order of the operator's schema.
using OperatorInputs = c10::ArrayRef<const c10::IValue>;

/// A multiplication and an addition count as two.
using FlopFormula = std::uint64_t (*)(OperatorInputs inputs);

/// Of the operator "aten::addmm" and the like: products of matrices, convolutions and attention.
/// nullptr where none is known.
FlopFormula find_flop_formula(std::string_view name);

}  // namespace lockstep
