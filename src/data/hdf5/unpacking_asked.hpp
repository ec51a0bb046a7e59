// SPDX-License-Identifier: Apache-2.0
// Whether numbers are taken for what they stand for is the user's to say: neither asked for where
// there is nothing to go by, nor left out without a word.
#pragma once

#include "lockstep/data/foreign.hpp"

#include "file_facts.hpp"

#include <filesystem>
#include <string>

namespace lockstep {

/// Errors: E235 if `field`, of ":cf", is of a data set that cannot be unpacked.
void check_unpacks(const DatasetFacts& facts,
                   const FieldMapping& field,
                   const std::filesystem::path& file);

/// What to warn of where a data set has attributes of the CF conventions and `field` has no ":cf";
/// "" if they change nothing, and of class numbers.
std::string unasked_unpacking(const DatasetFacts& facts, const FieldMapping& field);

}  // namespace lockstep
