// SPDX-License-Identifier: Apache-2.0
/// @file
/// The classes of a field that occur in samples; a model has an output for each class, used or not.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <string>

namespace lockstep {

/// Returns one line about the classes of `field` that do not occur, and how numpy numbers the
/// others. Returns "" if all occur, and for tokens, whose vocabulary does not belong to one data
/// set.
std::string unused_classes_text(const Field& field);

/// Checks the number of unused classes. Errors: E210 if their weights would be most of a model.
void check_class_numbers(const Field& field);

}  // namespace lockstep
