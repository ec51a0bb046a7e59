// SPDX-License-Identifier: Apache-2.0
// Finds hosts that do not answer: a firewall between two hosts stops no process and no link.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the addresses to which a TCP connection of this network namespace resends unacknowledged
/// data, with the seconds since the last answer. Empty if the kernel does not tell.
std::map<std::string, double> unanswered_addresses();

/// Returns the addresses of this network namespace, without loopback.
std::vector<std::string> own_addresses();

}  // namespace lockstep
