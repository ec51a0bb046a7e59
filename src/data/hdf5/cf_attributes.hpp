// SPDX-License-Identifier: Apache-2.0
// Reads what netCDF's users write beside their numbers: scale_factor, add_offset, _FillValue, ...
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

#include <optional>

namespace lockstep {

/// What attributes of the CF conventions (2.5.1, 8.1) and `_Unsigned` of NetCDF's users' guide say
/// of `dataset`, whose elements are `number`; nothing if it has none of them. What is not as these
/// documents have it is a fault, never guessed.
std::optional<CfFacts> cf_attributes_of(const h5::Handle& dataset, const NumberFacts& number);

}  // namespace lockstep
