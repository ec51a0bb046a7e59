// SPDX-License-Identifier: Apache-2.0
/// @file
/// The name of this node.
#pragma once

#include <string>

namespace lockstep {

/// As messages name it; "?" where the system does not say.
std::string host_name();

}  // namespace lockstep
