// SPDX-License-Identifier: Apache-2.0
// Rules for names of fields and data sets.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Returns true if a field may have this name: letters, digits, '_' and '-', at least one.
bool is_field_name(std::string_view name);

/// Returns a UUID made from content (RFC 9562, version 8), from `digest`'s 32 hexadecimal digits.
std::string uuid_from(std::string digest);

}  // namespace lockstep
