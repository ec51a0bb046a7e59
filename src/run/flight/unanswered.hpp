// SPDX-License-Identifier: Apache-2.0
// To which hosts this one sends in vain: a firewall between two hosts stops no process and no link.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Of each address to which a TCP connection of this network namespace leads that sends again what
/// was not acknowledged: for how many seconds nothing has come back. Empty where the kernel does
/// not tell.
std::map<std::string, double> unanswered_addresses();

/// Addresses of this network namespace, without those of loopback.
std::vector<std::string> own_addresses();

}  // namespace lockstep
