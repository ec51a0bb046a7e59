// SPDX-License-Identifier: Apache-2.0
// The ranks as data's functions know them, and how far they are.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/data/pack.hpp"
#include "lockstep/data/team.hpp"
#include "lockstep/run/progress.hpp"

#include <functional>
#include <string>

namespace lockstep {

/// Shows how far packing is, for as long as `progress` lives and while a SignalGuard is there.
/// Errors: E242 if a signal asked this process to end; `doing` is "packing".
std::function<void(const PackProgress&)> pack_report(const std::string& doing, Progress& progress);

/// All of `ranks`, which must outlive the result.
Team team_of(const Communicator& ranks);

}  // namespace lockstep
