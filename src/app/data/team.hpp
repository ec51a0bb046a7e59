// SPDX-License-Identifier: Apache-2.0
// The ranks as data's functions know them, and how a signal ends their work in order.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/team.hpp"

#include <string>

namespace lockstep {

/// All of `ranks`, which must outlive the result.
Team team_of(const Communicator& ranks);

/// Throws Error E242 if a signal asked this process to end; `doing` is "packing". For progress
/// callbacks while a SignalGuard is there.
void stop_if_asked(const std::string& doing);

}  // namespace lockstep
