// SPDX-License-Identifier: Apache-2.0
/// @file
/// The ranks that others waited for, how long and why, from the steps that each rank has kept.
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

/// The steps of a rank, and the messages that it has timed.
struct RankSteps {
    int rank = 0;
    std::string host;
    std::span<const StepBudget> steps{};  ///< in order, of one start; borrowed
    int leaves = 0;                       ///< leaves of each step; 0: unknown
    std::string data_bound{};             ///< DataReport::bound; "": unknown
    std::span<const LinkTimes> links{};   ///< to this rank, of that start; borrowed
};

/// Returns the ranks of the run's start, borrowed from `run`.
std::vector<RankSteps> steps_of_ranks(const RunFigures& run);

/// The direction in which a link is slow, seen from its node.
enum class LinkWay { both, sends, receives };

/// A node whose messages all are slow one way or both, or a pair of nodes with slow messages
/// between them.
struct SlowLink {
    std::string host;
    std::vector<int> ranks;          ///< ranks of that node
    std::string other_host{};        ///< second node of a pair; "": the node is slow to all others
    std::vector<int> other_ranks{};  ///< ranks of the second node
    LinkWay way = LinkWay::both;     ///< seen from `host`
    double bytes_per_s = 0;          ///< speed from rank to rank
    double usual_bytes_per_s = 0;    ///< speed of the others
    bool are_alone = false;          ///< there are no others: only these two exchange messages
};

/// Compares the messages from node to node: slow is below 0.4 of the usual speed, between two nodes
/// below a quarter. Returns the fewest single nodes that explain the slow messages, and pairs for
/// those that no single node explains; the one that explains most is first. Nothing if there is
/// nothing to compare.
std::vector<SlowLink> find_slow_links(std::span<const RankSteps> ranks);

/// Returns "; from node to node a rank gets 48 MB/s"; "" without measurements.
std::string link_rate_clause(std::span<const RankSteps> ranks);

/// Returns "1.1 GB/s", "48 MB/s" (powers of 1000, as for links).
std::string link_rate_text(double bytes_per_s);

/// The activity in which a straggler is slower than the other ranks.
enum class StragglerCause {
    data,   ///< getting its batches
    copy,   ///< copying them to its GPU
    cores,  ///< computing
    link,   ///< sums, without its waiting for others; or its node's messages are slow
    files,  ///< saving
    other,  ///< activities without an own phase
    more,   ///< computing, because it has more leaves than others
};

std::string_view cause_name(StragglerCause cause);  ///< the enumerator's name, for records

/// A rank that others wait for; or a node with a slow link that all wait for, by its first rank.
struct Straggler {
    int rank = 0;
    std::string host;
    StragglerCause cause = StragglerCause::other;
    double lost_s = 0;         ///< seconds of each step: its own time minus the other ranks' median
    double share = 0;          ///< the same as a share of the steps' wall time
    double persistence = 0;    ///< share of the run in which it was so
    std::string data_bound{};  ///< StragglerCause::data: the limiting stage, if known
    std::optional<SlowLink> link{};  ///< StragglerCause::link of a node, or of a pair
};

/// Returns the ranks whose own time (without waiting) exceeds the median of the other ranks by 5 %
/// of the step or more, most of the time; the worst is first. Steps that not all ranks have are
/// skipped, and so is the first step, which warms up caches. If all own times are alike, as for
/// GPUs, which wait inside their sums, times without sums are compared. A slow link
/// (find_slow_links()) makes all ranks wait alike. It counts if it costs 5 % or more: the sums and
/// waiting of the rank that waits least, minus their time at the usual speed.
std::vector<Straggler> find_stragglers(std::span<const RankSteps> ranks);

/// Removes those with a loss that the system itself may cause in such short steps: less than half a
/// millisecond per step, and less than a quarter of it. `lost_s` refers to real steps.
void erase_unsure(std::vector<Straggler>& stragglers);

/// Returns the stragglers of the run's start, without the unsure ones.
std::vector<Straggler> find_stragglers(const RunFigures& run);

/// Returns "rank 3 on n2 holds the others up by 12ms a step (18 %): its data are slow (I/O)". For
/// several it describes the worst and names the others. "" for none.
std::string stragglers_text(std::span<const Straggler> stragglers);

/// Returns one line: what to try.
std::string advice(const Straggler& straggler);

/// Returns all its data.
Json json_of(const Straggler& straggler);

}  // namespace lockstep
