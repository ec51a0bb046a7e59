// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which classes of a field occur: a model has an output for each, whether any sample has it or
/// not.
#pragma once

#include "lockstep/data/manifest.hpp"

#include <string>

namespace lockstep {

/// One line about the classes of `field` that do not occur, and how numpy numbers the others;
/// "" if all occur, and for tokens, whose vocabulary is not of one data set.
std::string unused_classes_text(const Field& field);

/// Errors: E210 if so many classes do not occur that their weights would be most of a model.
void check_class_numbers(const Field& field);

}  // namespace lockstep
