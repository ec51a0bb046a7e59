// SPDX-License-Identifier: Apache-2.0
// What fields and data sets may be called.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

/// Whether a field may have this name: letters, digits, '_' and '-', at least one.
bool is_field_name(std::string_view name);

/// A UUID made from content (RFC 9562, version 8), of `digest`'s 32 hexadecimal digits.
std::string uuid_from(std::string digest);

}  // namespace lockstep
