// SPDX-License-Identifier: Apache-2.0
// Gradients on the GPU against the tree written down on the host.
#pragma once

#include "lockstep/comm/bootstrap.hpp"

#include <string>

namespace lockstep {

/// Collective. Steps of an exchange, never waited for in between, whose values must have the bits
/// of the whole tree over leaves. Says what was done; throws Error if wrong.
std::string check_tree(Bootstrap& bootstrap);

}  // namespace lockstep
