// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of Lockstep.
#pragma once

#include <string_view>

/// All of Lockstep. Modules share it; headers say which one they belong to.
namespace lockstep {

/// "0.1.0"
std::string_view version_text();

}  // namespace lockstep
