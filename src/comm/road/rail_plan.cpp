// SPDX-License-Identifier: Apache-2.0
// Nodes 0 to 4 sum one stripe; five is no power of two, so node 1 first hands everything to node 0,
// and four members remain. Then members exchange with their nearest first and halve what they deal
// with:
//
//     nodes          0     1     2     3     4        member 0 = nodes 0 1, member 1 = node 2, ...
//     before         0 <-- 1
//     distance 1     0 <-------> 2     3 <-> 4        one keeps the low half, one the high half
//     distance 2     0 <-------------> 3              and a quarter
//                                2 <-------> 4
//     the way out is the same backwards: finished parts return, at last from 0 to 1
//
// (R. Thakur, R. Rabenseifner, W. Gropp, "Optimization of collective communication operations in
// MPICH", 2005.) The difference from the paper is in the messages. There a member sends one partial
// sum. Here only siblings of the one tree may be added (leaf_tree.cpp), so a member that holds
// parts of several subtrees sends several pieces, and the receiver adds those that meet their
// siblings. If subtrees are whole nodes there is one piece, and the cost is the paper's.
//
// Where each node owns a share of the stripe (--shard-state all), the values come back after the
// update instead (node_exchange.cpp), and the way in is one step, the same bytes in fewer turns:
//
//     share 0 of 3 <- pieces of nodes 1, 2       node 0 adds them to its own, in the tree's order
//     share 1 of 3 <- pieces of nodes 2, 0       node 1, and so on: any number of nodes is alike
//
// What must never happen: two nodes disagree about a step. The messages carry no description: each
// side computes the number and identity of the pieces from (tree, node_of_input, nodes) alone. So
// this file stays a pure function of these, independent of memory, sizes and time. The choice
// between the two kinds of plan depends on the size of the whole job, which is equal everywhere.
//
// Tested: comm/road/rail_plan_test.cpp plays all nodes of random groupings in one process
// and compares bits; on real ranks node_exchange_test.cpp beside it.

#include "road/rail_plan.hpp"

#include "lockstep/core/error.hpp"

#include <bit>
#include <optional>
#include <utility>

namespace lockstep {

// The order of additions as a tree of numbered pieces. It answers the question which of the present
// pieces may be added now:
//
//     order 0 1 0 2 over inputs a b c d            pieces held     may be added
//           6                                      a b c           a+b = 4; c stays, d is elsewhere
//         /   \        inputs 0 to 3               b c             nothing
//        4     5       sums 4 to 6, in the order   4 d c           c+d = 5, then 4+5 = 6
//       a b   c d      in which they are made
//
// combine() looks for the largest subtrees that are covered by the pieces held, and writes how each
// is added as an order for sum_into().
//
// What must never happen: a sum that is no subtree, such as b+c. Its value would be right, but not
// its bits.

SumTree::SumTree(std::span<const int> merges_after) : sums_(merges_after.size()) {
    std::vector<int> stack;
    for (std::size_t k = 0; k < merges_after.size(); ++k) {
        stack.push_back(static_cast<int>(k));
        for (int merges = merges_after[k]; merges > 0; --merges) {
            expect(stack.size() >= 2, "two sums merge");
            sums_.push_back({stack[stack.size() - 2], stack.back()});
            stack.pop_back();
            stack.back() = root();
        }
    }
    expect(stack.size() == 1, "all inputs merge into one sum");
}

std::vector<Combination> SumTree::combine(std::span<const int> pieces) const {
    const auto at = [](int sum) { return static_cast<std::size_t>(sum); };
    // By subtree: how the pieces add up to it; nothing if they do not cover it.
    std::vector<std::optional<Combination>> covered(sums_.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) covered[at(pieces[i])] = {pieces[i], {i}, {0}};
    for (int sum = 0; sum <= root(); ++sum) {
        const auto [left, right] = sums_[at(sum)];
        if (covered[at(sum)] || left < 0 || !covered[at(left)] || !covered[at(right)]) continue;
        auto& [whole, from, merges_after] = covered[at(sum)].emplace(std::move(*covered[at(left)]));
        const Combination& other = *covered[at(right)];
        whole = sum;
        from.insert(from.end(), other.from.begin(), other.from.end());
        merges_after.insert(
            merges_after.end(), other.merges_after.begin(), other.merges_after.end());
        ++merges_after.back();
    }
    std::vector<Combination> largest;
    std::vector<int> left_to_visit = {root()};
    while (!left_to_visit.empty()) {
        const int sum = left_to_visit.back();
        left_to_visit.pop_back();
        if (covered[at(sum)])
            largest.push_back(std::move(*covered[at(sum)]));
        else if (const auto [left, right] = sums_[at(sum)]; left >= 0)
            left_to_visit.insert(left_to_visit.end(), {right, left});
    }
    return largest;
}

namespace {

/// Consecutive nodes [begin, end).
struct NodeRange {
    int begin = 0, end = 0;
};

/// Nodes in pairs first, so that a power of two takes part in the halving: members 0, 1, ... of
/// it, the first `pairs` of which stand for two nodes each.
struct Halving {
    explicit Halving(int nodes)
        : members(static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)))),
          pairs(nodes - members) {}

    int first_node(int member) const { return member < pairs ? 2 * member : member + pairs; }
    int member_of(int node) const { return node < 2 * pairs ? node / 2 : node - pairs; }
    /// Nodes of members [first, first + count).
    NodeRange nodes_of(int first, int count) const {
        return {first_node(first), first_node(first + count)};
    }

    int members, pairs;
};

class Planner {
  public:
    Planner(const SumTree& tree, std::span<const int> node_of_input)
        : tree_(tree), node_of_input_(node_of_input) {}

    /// The sums that `nodes` can make of their inputs.
    std::vector<Combination> sums_of(NodeRange nodes) const {
        std::vector<int> inputs;
        for (std::size_t k = 0; k < node_of_input_.size(); ++k)
            if (node_of_input_[k] >= nodes.begin && node_of_input_[k] < nodes.end)
                inputs.push_back(static_cast<int>(k));
        return tree_.combine(inputs);
    }

    RailStep step(NodeRange mine, NodeRange theirs, int peer, Share sends, Share keeps) const {
        RailStep step{peer, peer, sends, keeps, 0, {}};
        if (keeps == Share::none) return step;
        std::vector<int> pieces = pieces_of(mine);
        const std::vector<int> received = pieces_of(theirs);
        pieces.insert(pieces.end(), received.begin(), received.end());
        step.received = static_cast<int>(received.size());
        step.sums = tree_.combine(pieces);
        return step;
    }

    /// In the order of distances, from that of the first step on.
    std::vector<RailStep> steps_to_owners(int node, int nodes, int turn) const {
        std::vector<RailStep> steps;
        std::vector<int> pieces = pieces_of({node, node + 1});
        for (int i = 0; i + 1 < nodes; ++i) {
            const int distance = 1 + (turn + i) % (nodes - 1);
            const int to = (node + distance) % nodes, from = (node + nodes - distance) % nodes;
            const std::vector<int> received = pieces_of({from, from + 1});
            pieces.insert(pieces.end(), received.begin(), received.end());
            const Share sends{to, nodes}, keeps{node, nodes};
            steps.push_back({to, from, sends, keeps, static_cast<int>(received.size()), {}});
        }
        steps.back().sums = tree_.combine(pieces);
        return steps;
    }

  private:
    std::vector<int> pieces_of(NodeRange nodes) const {
        std::vector<int> pieces;
        for (const Combination& sum : sums_of(nodes)) pieces.push_back(sum.whole);
        return pieces;
    }

    const SumTree& tree_;
    std::span<const int> node_of_input_;
};

RailStep halving_step(
    const Planner& planner, const Halving& halving, int member, int distance, RailKind kind) {
    const auto block = [&](int of) { return halving.nodes_of(of / distance * distance, distance); };
    const int peer = member ^ distance;
    Share sends = Share::all, keeps = Share::all;
    if (kind == RailKind::long_message) {
        sends = peer < member ? Share::low : Share::high;
        keeps = peer < member ? Share::high : Share::low;
    }
    return planner.step(block(member), block(peer), halving.first_node(peer), sends, keeps);
}

RailPlan make_plan(
    const SumTree& tree, std::span<const int> node_of_input, int node, int nodes, RailKind kind) {
    const Planner planner(tree, node_of_input);
    const Halving halving(nodes);
    const int member = halving.member_of(node), first = halving.first_node(member);
    RailPlan plan{kind, planner.sums_of({node, node + 1}), {}, tree.root()};
    const NodeRange giver = {first + 1, first + 2};
    // Stands aside from here on; the way out brings it the whole sum.
    if (node != first) {
        plan.steps.push_back(planner.step(giver, {}, first, Share::all, Share::none));
        return plan;
    }
    if (member < halving.pairs)
        plan.steps.push_back(
            planner.step({first, first + 1}, giver, first + 1, Share::none, Share::all));
    for (int distance = 1; distance < halving.members; distance *= 2)
        plan.steps.push_back(halving_step(planner, halving, member, distance, kind));
    return plan;
}

}  // namespace

FloatRange share_of(FloatRange range, Share share) {
    if (share == Share::none) return {range.begin, range.begin};
    return part_of(range, share.index, share.of);
}

RailPlan make_rail_plan(const SumTree& tree,
                        std::span<const int> given_node_of_input,
                        int given_node,
                        int nodes,
                        RailKind kind,
                        int turn) {
    expect(given_node >= 0 && given_node < nodes, "0 <= node < nodes");
    if (kind == RailKind::to_owners) {
        const Planner planner(tree, given_node_of_input);
        return {kind,
                planner.sums_of({given_node, given_node + 1}),
                planner.steps_to_owners(given_node, nodes, turn),
                tree.root()};
    }
    const auto turned = [&](int node) { return (node + turn) % nodes; };
    const auto turned_back = [&](int node) { return (node + nodes - turn % nodes) % nodes; };
    std::vector<int> node_of_input(given_node_of_input.begin(), given_node_of_input.end());
    for (int& node : node_of_input) node = turned(node);
    RailPlan plan = make_plan(tree, node_of_input, turned(given_node), nodes, kind);
    for (RailStep& step : plan.steps) step.peer = step.from = turned_back(step.peer);
    return plan;
}

}  // namespace lockstep
