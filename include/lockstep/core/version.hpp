// SPDX-License-Identifier: Apache-2.0
// Which Lockstep this is.
#pragma once

#include <string_view>

namespace lockstep {

/// "0.1.0"
std::string_view version_text();

}  // namespace lockstep
