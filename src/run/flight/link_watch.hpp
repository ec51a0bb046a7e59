// SPDX-License-Identifier: Apache-2.0
// Detects network links of this node that went down recently.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

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
