// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which nodes' links are slower than the others', by messages that ranks have timed.
#pragma once

#include "lockstep/core/link_times.hpp"

#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// What a rank has timed.
struct RankLinks {
    int rank = 0;
    std::string host;
    std::span<const LinkTimes> links;  ///< to this rank; borrowed
};

/// Which way a link is slow, seen from its node.
enum class LinkWay { both, sends, receives };

/// A node all of whose messages are slow one way or both; or two nodes between which they are.
struct SlowLink {
    std::string host;
    std::vector<int> ranks;        ///< of that node
    std::string other_host{};      ///< of two nodes the second; "": it is slow to all others
    std::vector<int> other_ranks;  ///< of that
    LinkWay way = LinkWay::both;   ///< seen from `host`
    double bytes_per_s = 0;        ///< from rank to rank
    double usual_bytes_per_s = 0;  ///< of the others
    bool are_alone = false;        ///< there are no others: these two exchange messages alone
};

/// Compares what came from node to node: slow is less than 0.4 of what is usual, between two nodes
/// less than a quarter. As few nodes as explain all that is slow, and as two what one alone does
/// not; the one with the most to explain first. Nothing where nothing is to be compared.
std::vector<SlowLink> find_slow_links(std::span<const RankLinks> ranks);

/// "; from node to node a rank gets 48 MB/s"; "" without figures.
std::string link_rate_clause(std::span<const RankLinks> ranks);

/// "1.1 GB/s", "48 MB/s" (powers of 1000, as links are sold).
std::string link_rate_text(double bytes_per_s);

}  // namespace lockstep
