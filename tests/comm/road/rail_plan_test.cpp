// SPDX-License-Identifier: Apache-2.0
#include "road/rail_plan.hpp"

#include "lockstep/comm/leaf_tree.hpp"

#include "comm/reference.hpp"
#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <set>
#include <utility>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::balanced_order;
using lockstep::test::hard_value;
using lockstep::test::same_bits;

using Vector = std::vector<float>;

/// The inputs of one node.
std::vector<Vector> inputs_of(const std::vector<int>& node_of_input, int node, std::size_t count) {
    std::vector<Vector> inputs;
    for (std::size_t k = 0; k < node_of_input.size(); ++k) {
        if (node_of_input[k] != node) continue;
        Vector& values = inputs.emplace_back(count);
        for (std::size_t i = 0; i < count; ++i) values[i] = hard_value(1, static_cast<int>(k), i);
    }
    return inputs;
}

Vector sum_of(const std::vector<int>& merges_after, const std::vector<Vector>& inputs) {
    Vector sum(inputs.front().size());
    std::vector<const float*> from;
    for (const Vector& input : inputs) from.push_back(input.data());
    const std::array<float*, 1> to = {sum.data()};
    sum_into(merges_after, from, to, sum.size());
    return sum;
}

std::vector<Vector> added(const std::vector<Vector>& pieces, const std::vector<Combination>& sums) {
    std::vector<Vector> results;
    for (const Combination& sum : sums) {
        std::vector<Vector> inputs;
        for (const std::size_t i : sum.from) inputs.push_back(pieces[i]);
        results.push_back(sum_of(sum.merges_after, inputs));
    }
    return results;
}

/// All nodes of a rail in one process, a step of all of them at a time.
class Rails {
  public:
    Rails(const std::vector<int>& order,
          const std::vector<int>& node_of_input,
          int nodes,
          RailKind kind,
          std::size_t count,
          int turn = 0) {
        const SumTree tree(order);
        for (int node = 0; node < nodes; ++node) {
            states_.push_back({make_rail_plan(tree, node_of_input, node, nodes, kind, turn),
                               inputs_of(node_of_input, node, count),
                               {{0, count}},
                               Vector(count)});
            add_up(states_.back(), states_.back().plan.own);
        }
    }

    /// False if some node waits for what nobody sends.
    bool run() {
        while (!all_are([](const State& state) { return state.step == state.plan.steps.size(); }))
            if (!move([&](State& state) { return move_in(state); })) return false;
        for (State& state : states_)
            if (!state.pieces.empty() && !gives(state)) state.result = state.pieces.front();
        while (!all_are([](const State& state) { return state.step == 0; }))
            if (!move([&](State& state) { return move_out(state); })) return false;
        return true;
    }

    const Vector& result(int node) const { return states_[static_cast<std::size_t>(node)].result; }
    int pieces_sent() const { return pieces_sent_; }

  private:
    struct State {
        RailPlan plan;
        std::vector<Vector> pieces;
        std::vector<FloatRange> ranges;
        Vector result;
        std::size_t step = 0;
    };

    static bool gives(const State& state) {
        return !state.plan.steps.empty() && state.plan.steps.back().keeps == Share::none;
    }

    template <class Predicate>
    bool all_are(Predicate&& predicate) const {
        return std::all_of(states_.begin(), states_.end(), predicate);
    }
    template <class Move>
    bool move(Move&& one) {
        bool moved = false;
        for (State& state : states_) moved = one(state) || moved;
        return moved;
    }

    static void add_up(State& state, const std::vector<Combination>& sums) {
        state.pieces = added(state.pieces, sums);
    }

    State& peer_of(const State& state) {
        return states_[static_cast<std::size_t>(state.plan.steps[state.step].peer)];
    }
    int node_of(const State& state) const { return static_cast<int>(&state - states_.data()); }

    /// Both at once, if the peer is at the step in which it meets this node.
    bool move_in(State& state) {
        if (state.step == state.plan.steps.size()) return false;
        State& peer = peer_of(state);
        if (peer.step == peer.plan.steps.size()) return false;
        const RailStep& mine = state.plan.steps[state.step];
        const RailStep& theirs = peer.plan.steps[peer.step];
        if (theirs.peer != node_of(state)) return false;
        const std::vector<Vector> sent = state.pieces, received = peer.pieces;
        take(state, mine, received);
        take(peer, theirs, sent);
        ++state.step;
        ++peer.step;
        return true;
    }

    void take(State& state, const RailStep& step, const std::vector<Vector>& received) {
        state.ranges.push_back(share_of(state.ranges.back(), step.keeps));
        if (step.keeps == Share::none) return;
        EXPECT_EQ(step.received, static_cast<int>(received.size()));
        state.pieces.insert(state.pieces.end(), received.begin(), received.end());
        pieces_sent_ += step.received;
        add_up(state, step.sums);
    }

    bool move_out(State& state) {
        if (state.step == 0) return false;
        --state.step;
        State& peer = peer_of(state);
        const bool meets = peer.step > 0 && peer.plan.steps[peer.step - 1].peer == node_of(state);
        if (!meets) return ++state.step, false;
        --peer.step;
        give(state, peer);
        give(peer, state);
        return true;
    }

    static void give(const State& from, State& to) {
        const RailStep& step = to.plan.steps[to.step];
        if (step.sends == Share::all && step.keeps == Share::all) return;
        const FloatRange range = share_of(to.ranges[to.step], step.sends);
        EXPECT_EQ(range, share_of(from.ranges[from.step], from.plan.steps[from.step].keeps));
        std::copy(from.result.begin() + static_cast<std::ptrdiff_t>(range.begin),
                  from.result.begin() + static_cast<std::ptrdiff_t>(range.end),
                  to.result.begin() + static_cast<std::ptrdiff_t>(range.begin));
    }

    std::vector<State> states_;
    int pieces_sent_ = 0;
};

Vector expected(const std::vector<int>& order, std::size_t count) {
    return sum_of(order, inputs_of(std::vector<int>(order.size()), 0, count));
}

/// Every node has an input.
std::vector<int> any_nodes(std::size_t inputs, int nodes) {
    std::vector<int> node_of_input;
    for (std::size_t k = 0; k < inputs; ++k)
        node_of_input.push_back(k < static_cast<std::size_t>(nodes) ? static_cast<int>(k)
                                                                    : *rc::gen::inRange(0, nodes));
    return node_of_input;
}

RC_GTEST_PROP(RailPlan, GivesEveryNodeTheBitsOfTheWholeTree, ()) {
    const int nodes = *rc::gen::inRange(1, 12);
    const int inputs = *rc::gen::inRange(nodes, 25);
    const auto count = *rc::gen::inRange<std::size_t>(0, 300);
    const std::vector<int> order = balanced_order(inputs);
    const std::vector<int> node_of_input = any_nodes(order.size(), nodes);
    const int turn = *rc::gen::inRange(0, 2 * nodes);
    for (const RailKind kind : {RailKind::short_message, RailKind::long_message}) {
        Rails rails(order, node_of_input, nodes, kind, count, turn);
        RC_ASSERT(rails.run());
        for (int node = 0; node < nodes; ++node)
            RC_ASSERT(same_bits(rails.result(node), expected(order, count)));
    }
}

/// What node `node` holds after the one step in which all send each other their pieces.
Vector sum_at_owner(const SumTree& tree,
                    const std::vector<int>& node_of_input,
                    int node,
                    int nodes,
                    int turn,
                    std::size_t count) {
    const auto pieces_of = [&](int of) {
        const RailPlan plan =
            make_rail_plan(tree, node_of_input, of, nodes, RailKind::to_owners, turn);
        return added(inputs_of(node_of_input, of, count), plan.own);
    };
    const RailPlan plan =
        make_rail_plan(tree, node_of_input, node, nodes, RailKind::to_owners, turn);
    std::vector<Vector> pieces = pieces_of(node);
    std::set<int> senders = {node}, receivers = {node};
    for (const RailStep& step : plan.steps) {
        const std::vector<Vector> received = pieces_of(step.from);
        EXPECT_EQ(step.received, static_cast<int>(received.size()));
        EXPECT_EQ(step.sends, (Share{step.peer, nodes}));
        EXPECT_EQ(step.keeps, (Share{node, nodes}));
        pieces.insert(pieces.end(), received.begin(), received.end());
        senders.insert(step.from);
        receivers.insert(step.peer);
    }
    EXPECT_EQ(senders.size(), static_cast<std::size_t>(nodes)) << "each once";
    EXPECT_EQ(receivers, senders);
    if (!plan.steps.empty()) pieces = added(pieces, plan.steps.back().sums);
    EXPECT_EQ(pieces.size(), 1u);
    return pieces.front();
}

RC_GTEST_PROP(RailPlan, GivesEachOwnerTheBitsOfTheWholeTree, ()) {
    const int nodes = *rc::gen::inRange(2, 12);
    const int inputs = *rc::gen::inRange(nodes, 25);
    const auto count = *rc::gen::inRange<std::size_t>(0, 300);
    const std::vector<int> order = balanced_order(inputs);
    const std::vector<int> node_of_input = any_nodes(order.size(), nodes);
    const int turn = *rc::gen::inRange(0, 2 * nodes);
    for (int node = 0; node < nodes; ++node)
        RC_ASSERT(same_bits(sum_at_owner(SumTree(order), node_of_input, node, nodes, turn, count),
                            expected(order, count)));
}

TEST(RailPlan, SendsOnePieceAtATimeWhereSubtreesAreWholeNodes) {
    for (const int nodes : {2, 3, 4, 6, 7, 8, 16}) {
        std::vector<int> two_on_each;
        for (int k = 0; k < 2 * nodes; ++k) two_on_each.push_back(k / 2);
        Rails rails(balanced_order(2 * nodes), two_on_each, nodes, RailKind::long_message, 256);
        EXPECT_TRUE(rails.run());
        const int members = static_cast<int>(std::bit_floor(static_cast<unsigned>(nodes)));
        const int steps = std::countr_zero(static_cast<unsigned>(members));
        EXPECT_EQ(rails.pieces_sent(), nodes - members + members * steps) << nodes << " nodes";
    }
}

TEST(SumTree, KeepsPiecesApartWhoseSiblingIsElsewhere) {
    const SumTree tree(balanced_order(8));
    const std::vector<int> pieces = {1, 2, 3, 4, 5, 7};  // 0 and 6 are elsewhere
    const auto sums = tree.combine(pieces);
    std::vector<std::vector<std::size_t>> from;
    for (const Combination& sum : sums) from.push_back(sum.from);
    EXPECT_EQ(from, (std::vector<std::vector<std::size_t>>{{0}, {1, 2}, {3, 4}, {5}}));
    EXPECT_EQ(sums[1].merges_after, (std::vector<int>{0, 1}));
}

// So that the two of three nodes that never meet do.
TEST(RailPlan, LetsAllOfThreeNodesMeetInTurns) {
    const SumTree tree(balanced_order(4));
    const std::vector<int> node_of_input = {0, 1, 2, 2};
    std::set<std::pair<int, int>> pairs;
    for (int turn = 0; turn < 2; ++turn)
        for (int node = 0; node < 3; ++node)
            for (const RailStep& step :
                 make_rail_plan(tree, node_of_input, node, 3, RailKind::long_message, turn).steps)
                pairs.insert({node, step.peer});
    EXPECT_EQ(pairs.size(), 6u);
}

}  // namespace
