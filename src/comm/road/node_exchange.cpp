// SPDX-License-Identifier: Apache-2.0
// Sums gradients without sending them inside a node. All ranks of a node keep their slots in one
// shared window; the sum of a stripe is made by one rank that reads the others' slots in place:
//
//     window       | flags | values | slots of rank 0 | slots of rank 1 | slots of rank 2 |
//                             ^         bucket b: [ s0 | s1 | s2 ] in every slot
//                             |
//     rank 0 owns stripe 0:   |    reads s0 of all slots, adds, -- rail --> stripe 0 on other nodes
//     rank 1 owns stripe 1:   |    reads s1 ...                               (rail_plan.cpp)
//                             |
//     the optimizer of each owner writes its stripe of `values`, once for the whole node
//
// So a gradient is read once and a parameter written once on each node, and the owners share the
// adding evenly. Every node gets the whole sum and updates its own copy of `values`. A node with
// more ranks than the smallest node has ranks without a stripe, which only arrive and publish.
//
// With ShardState::all the stripe of a rail is cut again, over the nodes. An owner gets the sum of
// its part alone, and publish() sends the updated values of that part to the other nodes.
//
// make_exchange() chooses the transport of gradients. Every transport is this one class; transports
// differ only in which ranks share memory (a rank alone has none):
//
//     shared memory   { 0 1 2 3 }                one node
//     hierarchical    { 0 1 } { 2 3 }            nodes as the system shows them
//     mpi             { 0 } { 1 } { 2 } { 3 }    each rank a node of its own
//
// So no transport has its own order of summation, and bits cannot depend on the choice.
//
// Arrivals and publications are one count per rank that only grows (RankFlags): ranks arrive at the
// same buckets in the same order, so the n-th raise means the same on every rank, and nothing is
// ever reset.
//
// What must never happen:
// - A stripe is read before every rank of the node arrived at its bucket, or a slot is written
//   again before publish(): the owner may still be reading it. publish() is the only barrier of a
//   step.
// - Two ranks write one line of `values`: stripes are cut at 64-byte lines and are each bucket
//   once.
// - Sums go to memory that others read: the sum replaces the owner's own slot 0, in its own stripe.
// - Buckets enter the rails in another order on another node; hence the queue `arrivals_`.
// - A rank passes publish() before the parts of other nodes are in `values`: a rank of a rail
//   raises its flag only after that.
// - Two ranks choose another transport. A node without room for its window is therefore not a local
//   matter. The room is checked on every node first and all ranks take the decision together: a
//   rank that changed alone would wait for messages while the others wait for flags.
// - Ranks with other buckets sum unrelated values, or hang, long after the mistake: layout and plan
//   are compared before anything is allocated.
//
// Tested: comm/road/node_exchange_test.cpp (any grouping of ranks into nodes, stripes are
// every bucket once), comm/exchange_test.cpp (each transport, step after step, whom it waits for,
// too small a /dev/shm), comm/road/recorded_test.cpp (another layout on one rank).

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/shared_window.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"

#include "base/aligned_floats.hpp"
#include "base/spin.hpp"
#include "road/nodes.hpp"
#include "road/rail.hpp"
#include "road/signatures.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// The places in the window: flags, values, then each rank's slots.
struct WindowLayout {
    std::size_t flag_bytes, vector_bytes, slots;

    WindowLayout(const FlatLayout& layout, const TreePlan& plan)
        : flag_bytes(whole_pages(RankFlags::bytes_for(plan.ranks()))),
          vector_bytes(whole_pages(layout.size() * sizeof(float))),
          slots(static_cast<std::size_t>(plan.slots())) {}

    std::size_t slot_at(int local_rank, int slot) const {
        const std::size_t before =
            static_cast<std::size_t>(local_rank) * slots + static_cast<std::size_t>(slot);
        return flag_bytes + vector_bytes * (1 + before);
    }
    std::size_t bytes(int ranks) const { return slot_at(ranks, 0); }
};

/// The owner of a stripe sums it straight from the slots of its node's ranks, then with the owners
/// of the same stripe on the other nodes.
class NodeExchange : public Exchange {
  public:
    NodeExchange(Nodes nodes, const FlatLayout& layout, const TreePlan& plan, ShardState shards)
        : nodes_(std::move(nodes)),
          shards_(nodes_.count() > 1 ? shards : ShardState::node),
          layout_(layout),
          plan_(plan),
          places_(layout, plan),
          window_(nodes_.local(), places_.bytes(nodes_.local().size())),
          patience_(patience_of(nodes_.local())),
          flags_(window_.data(), nodes_.local().rank(), nodes_.local().size(), patience_),
          job_of_(layout.bucket_count()) {
        zero_own_part();
        if (nodes_.has_rail()) make_rail();
        nodes_.all().barrier();
    }

    float* slot(int index) override {
        return floats_at(places_.slot_at(nodes_.local().rank(), index));
    }
    float* values() override { return floats_at(places_.flag_bytes); }

    FloatRange own_stripe(std::size_t bucket) const override {
        const FloatRange stripe = stripe_of_rail(bucket);
        if (shards_ == ShardState::node) return stripe;
        return part_of(stripe, nodes_.index(), nodes_.count());
    }
    bool is_first_copy() const override {
        return shards_ == ShardState::all || nodes_.index() == 0;
    }
    int sharers() const override { return nodes_.local().size(); }

    void arrive(std::size_t bucket) override {
        job_of_[bucket] = arrived_++;
        arrivals_.push_back({bucket, flags_.raise()});
    }

    /// A rank without stripes has no pipeline: its empty sum is there at once.
    const float* reduce(std::size_t bucket, Wait wait) override {
        while (pipeline_ && !is_reduced(bucket)) {
            advance();
            if (is_reduced(bucket)) break;
            if (wait == Wait::no) return nullptr;
            wait_for_news();
        }
        return slot(0) + own_stripe(bucket).begin;
    }

    /// Only the ranks that share values() need to meet: the others' copies are not written here,
    /// but by the messages of owners.
    void publish() override {
        if (gathered_) gather();
        const std::uint64_t publication = flags_.raise();
        awaited_count_ = publication;
        waiting_.count([&] { flags_.wait(publication); });
        awaited_count_ = 0;
    }

    std::vector<int> awaited_ranks() const override {
        std::vector<int> ranks;
        for (const int local_rank : flags_.missing(awaited_count_))
            ranks.push_back(nodes_.ranks_on(nodes_.index())[static_cast<std::size_t>(local_rank)]);
        if (awaited_sender_ >= 0) ranks.push_back(awaited_sender_);
        return ranks;
    }

    std::string_view name() const override {
        if (nodes_.count() == 1) return "shared memory";
        return nodes_.count() == nodes_.all().size() ? "mpi" : "hierarchical";
    }
    double take_wait_s() override { return waiting_.take(); }
    std::vector<LinkTimes> take_links() override { return links_.take(); }

  private:
    struct Arrival {
        std::size_t bucket;
        std::uint64_t count;  ///< count to which this rank's flag was raised
    };

    float* floats_at(std::size_t byte) const {
        return reinterpret_cast<float*>(window_.data() + byte);
    }
    /// The stripe of this rank and of those of the same local rank on other nodes.
    FloatRange stripe_of_rail(std::size_t bucket) const {
        if (nodes_.has_rail()) return layout_.stripe(bucket, nodes_.local().rank(), nodes_.rails());
        return {layout_.bucket(bucket).end, layout_.bucket(bucket).end};
    }

    /// Until a rank of this node arrives at the next bucket, or a message from another node does.
    void wait_for_news() {
        awaited_count_ = arrivals_.empty() ? 0 : arrivals_.front().count;
        wait_until([&] { return has_news(); }, *pipeline_);
        awaited_count_ = 0;
    }

    /// From where the values are to where they belong: what an owner has updated goes to the owners
    /// of the same stripe on the other nodes. All ranks of all nodes have ended their passes, or
    /// the step's sums were not there.
    void gather() {
        const int nodes = nodes_.count(), node = nodes_.index();
        gathered_->clear();
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b)
            for (int distance = 1; distance < nodes; ++distance) {
                const int from = (node + nodes - distance) % nodes;
                const FloatRange theirs = part_of(stripe_of_rail(b), from, nodes);
                const FloatRange mine = own_stripe(b);
                if (theirs.size() > 0)
                    gathered_->receive(from, values() + theirs.begin, theirs.size());
                if (mine.size() > 0)
                    gathered_->send((node + distance) % nodes, values() + mine.begin, mine.size());
            }
        wait_until([&] { return gathered_->are_through(); }, *gathered_);
    }

    /// `messages`: they know whose is awaited, which may change meanwhile.
    template <class Done, class Messages>
    void wait_until(Done&& done, const Messages& messages) {
        const bool has_messages = nodes_.count() > 1;
        const auto look = [&] {
            if (has_messages) awaited_sender_ = messages.awaited_rank();
            return done();
        };
        waiting_.count([&] { spin_until(look, has_messages ? Patience::none : patience_); });
        awaited_sender_ = -1;
    }

    /// The first touch decides on which memory node a page lies: each rank touches its own.
    void zero_own_part() {
        for (int i = 0; i < plan_.slots(); ++i) std::fill_n(slot(i), layout_.size(), 0.0f);
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b)
            std::fill_n(values() + stripe_of_rail(b).begin, stripe_of_rail(b).size(), 0.0f);
    }

    void make_rail() {
        rail_ = nodes_.own_rail();
        std::vector<int> node_of_partial;
        for (const Partial& partial : plan_.partials()) {
            node_of_partial.push_back(nodes_.node_of(partial.rank));
            if (node_of_partial.back() != nodes_.index()) continue;
            const int local_rank = nodes_.local_rank_of(partial.rank);
            local_partials_.push_back(floats_at(places_.slot_at(local_rank, partial.slot)));
        }
        pipeline_.emplace(rail_,
                          SumTree(plan_.merges_after()),
                          node_of_partial,
                          nodes_.index(),
                          shards_,
                          nodes_.count() > 1 ? &links_ : nullptr);
        if (shards_ == ShardState::all)
            gathered_.emplace(rail_, static_cast<int>(RailPipeline::lane_count));
    }

    /// Buckets are handed on in order, each when all ranks of the node arrived at it.
    bool next_has_arrived() const {
        return !arrivals_.empty() && flags_.all_reached(arrivals_.front().count);
    }
    bool is_reduced(std::size_t bucket) const { return pipeline_->finished() > job_of_[bucket]; }
    bool has_news() const { return next_has_arrived() || pipeline_->has_news(); }

    void advance() {
        for (; next_has_arrived(); arrivals_.pop_front()) submit(arrivals_.front().bucket);
        pipeline_->advance();
    }

    /// In place: nobody else reads this rank's own stripe.
    void submit(std::size_t bucket) {
        const FloatRange stripe = stripe_of_rail(bucket);
        RailJob job{{}, slot(0) + stripe.begin, stripe.size()};
        for (float* partial : local_partials_) job.inputs.push_back(partial + stripe.begin);
        pipeline_->submit(std::move(job));
    }

    const Nodes nodes_;
    const ShardState shards_;
    const FlatLayout layout_;
    const TreePlan plan_;
    const WindowLayout places_;
    const SharedWindow window_;
    const Patience patience_;
    RankFlags flags_;                  ///< raised by each arrival and each publication
    std::deque<Arrival> arrivals_;     ///< not handed on yet
    std::vector<std::size_t> job_of_;  ///< the number of its job in the pipeline, by bucket
    std::size_t arrived_ = 0;          ///< buckets since the beginning
    std::atomic<std::uint64_t> awaited_count_ = 0;
    std::atomic<int> awaited_sender_ = -1;
    std::vector<float*> local_partials_;
    LinkMeter links_;
    Rail rail_;
    std::optional<RailPipeline> pipeline_;  ///< set if this rank owns stripes
    std::optional<RailMessages> gathered_;  ///< set if it sends their values to other nodes
    WaitClock waiting_;
};

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

/// Collective. Fails on all ranks where one node lacks the room for its window. Errors: E632.
void check_room_everywhere(const Nodes& nodes, const FlatLayout& layout, const TreePlan& plan) {
    agree(nodes.all(), [&] {
        const int sharers = nodes.local().size();
        if (sharers > 1 && nodes.local().is_root())
            check_shared_room(WindowLayout(layout, plan).bytes(sharers));
    });
}

/// Collective. The ranks' nodes, or each rank alone where some node lacks the room for its window.
/// That is said once: ranks send messages then, which is slower, but sharing memory is not worth
/// failing for.
Nodes nodes_with_room(const Communicator& ranks, const FlatLayout& layout, const TreePlan& plan) {
    Nodes nodes(ranks, node_by_memory(ranks));
    try {
        check_room_everywhere(nodes, layout, plan);
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

std::unique_ptr<Exchange> make_node_exchange(Nodes nodes,
                                             const FlatLayout& layout,
                                             const TreePlan& plan,
                                             ShardState shards) {
    return std::make_unique<NodeExchange>(std::move(nodes), layout, plan, shards);
}

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
    check(transport != Transport::shared_memory || nodes.count() == 1,
          "E631",
          fmt::format("{} ranks on several nodes cannot share memory", ranks.size()),
          "--transport shared-memory is given",
          "let Lockstep choose the transport, or choose one that works across nodes");
    check_room_everywhere(nodes, layout, plan);
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
