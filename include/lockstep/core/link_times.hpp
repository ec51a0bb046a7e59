// SPDX-License-Identifier: Apache-2.0
/// @file
/// Measured speed of messages over the network, by rank.
#pragma once

#include "lockstep/core/record.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

/// Timed messages from one rank to another: the time on the network alone.
struct LinkTimes {
    int from = 0;  ///< rank of the sender
    std::int64_t messages = 0;
    std::uint64_t bytes = 0;  ///< bytes that arrived in that time
    double seconds = 0;
};
void describe(Record& record, LinkTimes& times);  ///< the form in logs

/// Adds `more` to `sums`, sender by sender. `sums` has an entry for each sender, by rank.
void add_links(std::vector<LinkTimes>& sums, std::span<const LinkTimes> more);

}  // namespace lockstep
