// SPDX-License-Identifier: Apache-2.0
// Whether a network link of this node went down lately.
#pragma once

#include <filesystem>
#include <map>
#include <string>

namespace lockstep {

/// Of the interfaces in `folder` that had a carrier when it was made; loopback and bridges, which
/// lose theirs with their last container, are none.
class LinkWatch {
  public:
    explicit LinkWatch(std::filesystem::path folder = "/sys/class/net");

    /// Whether one of them has lost its carrier within the last minute and is still without. To be
    /// called every few seconds.
    bool lost_one(double now_s);

  private:
    std::filesystem::path folder_;
    std::map<std::string, double> lost_at_s_;  // by name; 0: it has a carrier
};

}  // namespace lockstep
