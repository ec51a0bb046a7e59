// SPDX-License-Identifier: Apache-2.0
/// @file
/// The name of this node.
#pragma once

#include <string>

namespace lockstep {

/// Returns the node's name for messages; "?" if the system does not tell it.
std::string host_name();

}  // namespace lockstep
