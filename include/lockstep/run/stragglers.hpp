// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which ranks the others waited for, by how much and why, from the steps that each has kept.
#pragma once

#include "lockstep/core/link_times.hpp"
#include "lockstep/run/run_figures.hpp"
#include "lockstep/run/step_budget.hpp"

#include <optional>
#include <span>
#include <string>
#include <string_view>
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
/// not; the one with the most to explain first. Nothing if nothing is to be compared.
std::vector<SlowLink> find_slow_links(std::span<const RankLinks> ranks);

/// "; from node to node a rank gets 48 MB/s"; "" without figures.
std::string link_rate_clause(std::span<const RankLinks> ranks);

/// "1.1 GB/s", "48 MB/s" (powers of 1000, as links are sold).
std::string link_rate_text(double bytes_per_s);

/// What a straggler takes longer for than the other ranks.
enum class StragglerCause {
    data,   ///< getting its batches
    copy,   ///< getting them onto its GPU
    cores,  ///< computing
    link,   ///< sums, its waiting for others left out; or its node's messages are slow
    files,  ///< saving
    other,  ///< what has no phase of its own
    more,   ///< computing, of more leaves than the others have
};

std::string_view cause_name(StragglerCause cause);  ///< the enumerator's word, for records

/// A rank that others wait for; or a node whose link all wait for, by its first rank.
struct Straggler {
    int rank = 0;
    std::string host;
    StragglerCause cause = StragglerCause::other;
    double lost_s = 0;               ///< of each step: its own time less the other ranks' median
    double share = 0;                ///< of the steps' wall time that this is
    double persistence = 0;          ///< share of the run in which it was so
    std::string data_bound;          ///< StragglerCause::data: what binds them, if that is known
    std::optional<SlowLink> link{};  ///< StragglerCause::link of a node, or of two
};

/// What is known of a rank.
struct RankSteps {
    int rank = 0;
    std::string host;
    std::span<const StepBudget> steps;   ///< in order, of one start; borrowed
    int leaves = 0;                      ///< of each step; 0: not known
    std::string data_bound{};            ///< DataReport::bound; "": not known
    std::span<const LinkTimes> links{};  ///< to this rank, of that start; borrowed
};

/// The ranks whose own time (without waiting) is longer than the median of the other ranks' by 5 %
/// of the step or more, most of the time; the worst is first. Steps that not all ranks have are
/// passed over, and the first one, which warms caches up. Where all own times are alike, as those
/// of GPUs are, which wait inside their sums, times without sums are compared.
/// A slow link (find_slow_links()) makes all ranks wait alike. It counts where they stand still for
/// that: what the rank that waits least spends on sums and waiting, less what it would with the
/// usual rate, is 5 % or more.
std::vector<Straggler> find_stragglers(std::span<const RankSteps> ranks);

/// Takes out those whose loss is no more than what the system itself takes of so short steps:
/// less than half a millisecond a step, and less than a quarter of it. `lost_s` is of real steps.
void erase_unsure(std::vector<Straggler>& stragglers);

/// Of the start that was looked at; without the unsure ones.
std::vector<Straggler> find_stragglers(const RunFigures& run);

/// "its data are slow (I/O)"
std::string cause_text(const Straggler& straggler);

/// "rank 3 on n2 holds the others up by 12ms a step (18 %): its data are slow (I/O)"; of several
/// the worst, and which others there are. "" without any.
std::string stragglers_text(std::span<const Straggler> stragglers);

/// What to try, in one line.
std::string advice(const Straggler& straggler);

/// All that is known of it.
Json json_of(const Straggler& straggler);

}  // namespace lockstep
