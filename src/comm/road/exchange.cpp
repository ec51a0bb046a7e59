// SPDX-License-Identifier: Apache-2.0
// Chooses the transport of gradients. Every transport is one class, NodeExchange
// (node_exchange.cpp); transports differ only in which ranks share memory (a rank alone has none):
//
//     shared memory   { 0 1 2 3 }                one node
//     hierarchical    { 0 1 } { 2 3 }            nodes as the system shows them
//     mpi             { 0 } { 1 } { 2 } { 3 }    each rank a node of its own
//
// So no transport has its own order of summation, and bits cannot depend on the choice.
//
// What must never happen: two ranks choose differently. A node without room for its window is
// therefore not a local matter. The room is checked on every node first and all ranks take the
// decision together: a rank that changed alone would wait for messages while the others wait for
// flags. Layout and plan are compared before anything is allocated. Other buckets on another rank
// would sum unrelated values, or hang, long after the mistake.
//
// Tested: comm/exchange_test.cpp (each transport, too small a /dev/shm),
// comm/road/node_exchange_test.cpp, and comm/road/recorded_test.cpp (another layout on
// one rank).

#include "lockstep/comm/exchange.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/shared_window.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"

#include "base/aligned_floats.hpp"
#include "road/nodes.hpp"
#include "road/signatures.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// An exchange of a single rank: slots and values are private, and nothing is summed.
class SingleExchange : public Exchange {
  public:
    SingleExchange(const FlatLayout& layout, const TreePlan& plan)
        : layout_(layout), values_(make_aligned_floats(layout.size())) {
        for (int i = 0; i < plan.slots(); ++i) slots_.push_back(make_aligned_floats(layout.size()));
    }

    float* slot(int index) override { return slots_[static_cast<std::size_t>(index)].get(); }
    float* values() override { return values_.get(); }
    FloatRange own_stripe(std::size_t bucket) const override { return layout_.bucket(bucket); }
    void arrive(std::size_t) override {}
    /// V leaves of one rank are one partial: the sum is there.
    const float* reduce(std::size_t bucket, Wait) override {
        return slot(0) + layout_.bucket(bucket).begin;
    }
    void publish() override {}
    std::string_view name() const override { return "one rank"; }
    double take_wait_s() override { return 0; }

  private:
    FlatLayout layout_;
    AlignedFloats values_;
    std::vector<AlignedFloats> slots_;
};

/// Collective. Errors: E662 naming the ranks whose layout or plan differs.
void agree_on_layout(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    if (const auto error = layout_difference(ranks.all_gather(layout_signature(layout, plan))))
        agree_on_failure(ranks, error);
}

/// Collective. Makes every rank a node of its own: no memory is shared.
Nodes each_alone(const Communicator& ranks) {
    return Nodes(ranks, ranks.rank());
}

/// Collective. Fails on all ranks where one node lacks the room. `bytes`: of this node's window.
/// Errors: E632.
void check_room_everywhere(const Nodes& nodes, std::size_t bytes) {
    agree(nodes.all(), [&] {
        if (nodes.local().size() > 1 && nodes.local().is_root()) check_shared_room(bytes);
    });
}

/// Collective. The ranks' nodes, or each rank alone where some node lacks the room for its window.
/// That is said once: ranks send messages then, which is slower, but sharing memory is not worth
/// failing for.
Nodes nodes_with_room(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    Nodes nodes(ranks, node_by_memory(ranks));
    try {
        check_room_everywhere(nodes, node_window_bytes(nodes, layout, plan));
        return nodes;
    } catch (const AgreedError& error) {
        if (kind_of(error) != ErrorKind::no_shared_memory) throw;
        once(Level::warn,
             "{}; ranks send messages instead, which is slower ({})",
             error.what(),
             error.fix());
        return each_alone(ranks);
    }
}

}  // namespace

std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport,
                                        ShardState shards) {
    expect(plan.ranks() == ranks.size(), "the plan is for these ranks");
    if (ranks.size() == 1) return std::make_unique<SingleExchange>(layout, plan);
    agree_on_layout(ranks, layout, plan);
    if (transport == Transport::automatic)
        return make_node_exchange(nodes_with_room(ranks, layout, plan), layout, plan, shards);
    if (transport == Transport::mpi)
        return make_node_exchange(each_alone(ranks), layout, plan, shards);
    Nodes nodes(ranks, node_by_memory(ranks));
    check(transport != Transport::shared_memory || nodes.count() == 1, [&] {
        return Error("E631",
                     fmt::format("{} ranks on several nodes cannot share memory", ranks.size()),
                     "--transport shared-memory is given",
                     "let Lockstep choose the transport, or choose one that works across nodes");
    });
    check_room_everywhere(nodes, node_window_bytes(nodes, layout, plan));
    return make_node_exchange(std::move(nodes), layout, plan, shards);
}

int node_by_memory(const Communicator& ranks) {
    return std::stoi(ranks.split_by_node().broadcast(std::to_string(ranks.rank())));
}

Nodes::Nodes(const Communicator& ranks, int node) : all_(ranks.duplicate()) {
    std::map<std::string, int> numbers;
    for (const std::string& name : ranks.all_gather(std::to_string(node))) {
        const auto [entry, is_new] = numbers.emplace(name, count());
        if (is_new) members_.emplace_back();
        auto& members = members_[static_cast<std::size_t>(entry->second)];
        local_rank_of_.push_back(static_cast<int>(members.size()));
        members.push_back(static_cast<int>(node_of_rank_.size()));
        node_of_rank_.push_back(entry->second);
    }
    rails_ =
        static_cast<int>(std::ranges::min_element(members_, {}, &std::vector<int>::size)->size());
    local_ = ranks.split(index());
}

Rail Nodes::own_rail() const {
    expect(has_rail(), "this rank owns a stripe");
    Rail rail{all_, {}};
    for (int node = 0; node < count(); ++node)
        rail.rank_on_node.push_back(ranks_on(node)[static_cast<std::size_t>(local_.rank())]);
    return rail;
}

}  // namespace lockstep
