// SPDX-License-Identifier: Apache-2.0
// Checks that the user decides about packed numbers: `:cf` is refused without attributes, and
// attributes without `:cf` give a warning.
#pragma once

#include "lockstep/data/foreign.hpp"

#include "hdf5/file_facts.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Checks that a data set can be unpacked for `field` with ":cf". Errors: E235.
void check_unpacks(const DatasetFacts& facts,
                   const FieldMapping& field,
                   const std::filesystem::path& file);

/// Returns a warning if a data set has CF attributes and `field` has no ":cf"; "" if they change
/// nothing, and for class numbers.
std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field);

}  // namespace lockstep
