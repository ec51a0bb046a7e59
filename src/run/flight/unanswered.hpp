// SPDX-License-Identifier: Apache-2.0
// What this node's network tells: to which hosts it sends in vain, as a firewall between two hosts
// stops no process and no link; and whether a link went down lately.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

/// Returns the addresses to which a TCP connection of this network namespace resends unacknowledged
/// data, with the seconds since the last answer. Empty if the kernel does not tell.
std::map<std::string, double> unanswered_addresses();

/// Returns the addresses of this network namespace, without loopback.
std::vector<std::string> own_addresses();

/// Watches the interfaces in `folder` that had a carrier at construction. Loopback and bridges do
/// not count; a bridge loses its carrier with its last container.
class LinkWatch {
  public:
    explicit LinkWatch(std::filesystem::path folder = "/sys/class/net");

    /// Returns true if one of them lost its carrier within the last minute and is still without.
    /// Call it every few seconds.
    bool lost_one(double now_s);

  private:
    std::filesystem::path folder_;
    std::map<std::string, double> lost_at_s_;  // by name; 0: it has a carrier
};

}  // namespace lockstep
