// SPDX-License-Identifier: Apache-2.0
// Reads the attributes of netCDF's numbers: scale_factor, add_offset, _FillValue, ...
#pragma once

#include "file_facts.hpp"
#include "h5.hpp"

#include <optional>

namespace lockstep {

/// Returns the attributes of the CF conventions (2.5.1, 8.1) and `_Unsigned` of NetCDF's users'
/// guide for `dataset`, whose elements are `number`; nothing if it has none. An attribute that
/// differs from these documents is a fault and never guessed.
std::optional<CfFacts> cf_attributes_of(const h5::Handle& dataset, const NumberFacts& number);

}  // namespace lockstep
