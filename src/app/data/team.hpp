// SPDX-License-Identifier: Apache-2.0
// Ranks as a Team for data's functions, and the end of their work by a signal.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/team.hpp"

#include <string>

namespace lockstep {

/// Returns all of `ranks`, which must outlive the result.
Team team_of(const Communicator& ranks);

/// Checks for a signal that asks this process to end; `doing` is "packing". For progress callbacks
/// during a SignalGuard. Errors: E242.
void stop_if_asked(const std::string& doing);

}  // namespace lockstep
