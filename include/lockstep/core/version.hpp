// SPDX-License-Identifier: Apache-2.0
/// @file
/// The version of Lockstep.
#pragma once

#include <string_view>

/// The namespace of all Lockstep. Modules share it; headers say which module they belong to.
namespace lockstep {

/// Returns the version: "0.1.0".
std::string_view version_text();

}  // namespace lockstep
