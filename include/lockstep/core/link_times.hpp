// SPDX-License-Identifier: Apache-2.0
/// @file
/// How fast messages came over the network, rank by rank.
#pragma once

#include "lockstep/core/record.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Messages from one rank to another that were timed: the time on the network alone.
struct LinkTimes {
    int from = 0;  ///< the sender
    std::int64_t messages = 0;
    std::uint64_t bytes = 0;  ///< that came meanwhile
    double seconds = 0;
};
void describe(Record& record, LinkTimes& times);  ///< as logs have it

/// Adds `more` to `sums`, sender by sender; those have one entry each, in the order of ranks.
void add_links(std::vector<LinkTimes>& sums, std::span<const LinkTimes> more);

}  // namespace lockstep
