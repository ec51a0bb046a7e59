// SPDX-License-Identifier: Apache-2.0
// Arguments of an exported program as LibTorch's values: {"as_int": 1}, {"as_float": "Infinity"}.
#pragma once

#include "lockstep/core/json.hpp"

#include <optional>
#include <string>

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

namespace lockstep {

/// Returns a number for an operator that requires a tensor, whose type the other arguments decide,
/// as in Python.
c10::IValue wrapped_number(const c10::IValue& number);

/// Returns true if an operator requires a tensor there.
bool wants_tensor(const c10::Argument& argument);

/// Converts JSON's form of a value to the operator's: a whole number for a float, one number for a
/// list of a fixed length, a number for a tensor.
c10::IValue fitted_argument(c10::IValue value, const c10::Argument& argument);

/// Returns the value of `about` for an argument of `kind`, if that is no value of another node;
/// nothing: the kind is unknown. Errors: E222.
std::optional<c10::IValue> constant_argument(const std::string& kind, const Json& about);

/// Returns schema.py's element type as LibTorch's. Errors: E222.
at::ScalarType scalar_type_of(int number);

}  // namespace lockstep
