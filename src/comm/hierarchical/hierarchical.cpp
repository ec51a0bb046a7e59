// SPDX-License-Identifier: Apache-2.0
// Collectives over any ranks: shared memory inside a node, messages between the owners of one
// stripe. Every operation is the same frame around another RailWork (sum, gather, broadcast):
//
//     lent buffers    begin | rails: all segments begun, then finished | meet | copy out | meet
//     other memory    copy in 0 | meet | rails: 0, copy in 1 | meet | copy out 0
//                                                              meet | rails: 1, copy in 2 | ...
//
// Lent buffers lie in windows that all ranks of the node see: the owner works in them and nothing
// is copied in. Other memory goes through two slots a rank, by turns, so that a segment is copied
// in while the one before it travels, and a call while another rank still copies the last call's
// out.
//
// What must never happen:
// - A slot is written that somebody still reads: between two uses of one slot all ranks have met.
// - Ranks of one node choose different ways: the choice rests on its size, or on what all said of
//   their buffers in begin().
// - A message is summed by nodes in another order than the balanced tree over ranks: SumTree
//   decides, so that all back ends have the same bits.
//
// Tested: comm/hierarchical/hierarchical_test.cpp (any mix of calls, types, counts and memory;
// deadlines).

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"

#include "base/aligned_floats.hpp"
#include "base/missing_ranks.hpp"
#include "collectives/back_ends.hpp"
#include "collectives/lent_windows.hpp"
#include "collectives/private_memory.hpp"
#include "collectives/shared_meeting.hpp"
#include "collectives/sum_kernels.hpp"
#include "hierarchical/back_end.hpp"
#include "hierarchical/node_room.hpp"
#include "hierarchical/rail_work.hpp"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

/// Where everything but what is lent lies in a node's window: flags, then two segments a rank.
struct Places {
    std::size_t staging, end;

    explicit Places(int ranks)
        : staging(whole_pages(SharedMeeting::bytes_for(ranks))), end(slot(ranks, 0)) {}
    std::size_t slot(int local_rank, std::size_t turn) const {
        return staging + (2 * static_cast<std::size_t>(local_rank) + turn) * Segment::most_bytes;
    }
};

class Hierarchical : public Collectives {
  public:
    explicit Hierarchical(Nodes nodes)
        : nodes_(std::move(nodes)),
          rank_(nodes_.local().rank()),
          places_(nodes_.local().size()),
          window_(nodes_.local(), places_.end),
          patience_(patience_of(nodes_.local())),
          meeting_(window_.data(),
                   rank_,
                   nodes_.local().size(),
                   patience_,
                   nodes_.ranks_on(nodes_.index())),
          lent_(nodes_.local()),
          wait_{nodes_, meeting_} {
        if (nodes_.has_rail()) make_pipeline();
        nodes_.all().barrier();
    }

    std::string_view name() const override { return name_of(Algorithm::hierarchical); }
    void set_deadline(double seconds) override {
        meeting_.set_deadline(seconds);
        wait_.limit_s = seconds;
    }

    std::byte* lend(std::size_t bytes) override {
        if (nodes_.local().size() == 1) return private_.lend(bytes);
        meeting_.begin({.operation = SharedOperation::lend, .bytes = bytes});
        try {
            return lent_.lend(bytes);
        } catch (const AgreedError& error) {
            if (kind_of(error) != ErrorKind::no_shared_memory) throw;
            once(Level::warn, "{}; all-reduce copies more ({})", error.what(), error.fix());
            return private_.lend(bytes);
        }
    }

    void all_reduce(void* data, std::size_t count, DataType type) override {
        sum(SharedOperation::all_reduce, data, count, type);
    }
    void reduce_scatter(void* data, std::size_t count, DataType type) override {
        sum(SharedOperation::reduce_scatter, data, count, type);
    }
    void all_gather(void* data, std::size_t count, DataType type) override {
        const SharedCall call{.operation = SharedOperation::all_gather, .type = type};
        run(call, data, count * size_of(type), [&] {
            return std::make_unique<GatherOnRail>(*rail_, wait_);
        });
    }
    void broadcast(void* data, std::size_t bytes, int root) override {
        expect(root >= 0 && root < nodes_.all().size(), "the root is one of the ranks");
        run({.operation = SharedOperation::broadcast, .root = root}, data, bytes, [&] {
            return std::make_unique<BroadcastOnRail>(*rail_, wait_, root);
        });
    }

    /// The sum of one number: nobody has it before all came.
    void barrier() override {
        std::int64_t one = 1;
        sum(SharedOperation::barrier, &one, 1, DataType::int64);
    }

  private:
    void make_pipeline() {
        rail_ = nodes_.own_rail();
        std::vector<int> node_of_rank;
        for (int rank = 0; rank < nodes_.all().size(); ++rank)
            node_of_rank.push_back(nodes_.node_of(rank));
        const SumTree tree(balanced_order(nodes_.all().size()));
        pipeline_.emplace(*rail_, tree, node_of_rank, nodes_.index());
    }

    void sum(SharedOperation operation, void* data, std::size_t count, DataType type) {
        run({.operation = operation, .type = type}, data, count * size_of(type), [&] {
            return std::make_unique<SumOnRail>(*pipeline_, wait_);
        });
    }

    template <class Make>
    void run(SharedCall call, void* data, std::size_t bytes, Make&& make_work) {
        call.bytes = bytes;
        const Message message{static_cast<std::byte*>(data), bytes, call.type};
        std::unique_ptr<RailWork> work;
        if (nodes_.has_rail()) work = make_work();
        try {
            run(call, message, work.get());
        } catch (const Error& error) {
            if (kind_of(error) == ErrorKind::rank_absent) call_the_roll();
            throw;
        }
    }
    void call_the_roll() const;
    void run(SharedCall call, const Message& message, RailWork* work);
    void run_direct(const Message& message, RailWork* work);
    void run_staged(const SharedCall& call, const Message& message, RailWork* work);

    bool is_alone() const { return nodes_.local().size() == 1; }
    bool all_are_lent() const;
    Segment direct_segment(const Message& message, std::size_t begin) const;
    Segment staged_segment(const Message& message, std::size_t begin) const;
    void copy_in(const SharedCall& call, const Message& message, const Segment& segment) const;
    void copy_out(const Segment& segment, std::byte* to) const;

    const Nodes nodes_;
    const int rank_;  ///< on this node
    const Places places_;
    const SharedWindow window_;
    const Patience patience_;
    SharedMeeting meeting_;
    LentWindows lent_;
    PrivateMemory private_;
    RailWait wait_;
    std::optional<Rail> rail_;              ///< where this rank owns stripes
    std::optional<RailPipeline> pipeline_;  ///< likewise
    std::size_t staged_ = 0;                ///< segments so far
};

/// Little is copied to meet only twice: the ranks need not know first where each other's data are.
void Hierarchical::run(SharedCall call, const Message& message, RailWork* work) {
    const bool is_little = message.bytes <= Segment::most_bytes_of_one_stripe;
    if (!is_alone() && is_little) return run_staged(call, message, work);
    lent_.locate(message, call);
    meeting_.begin(call);
    if (is_alone() || all_are_lent()) return run_direct(message, work);
    run_staged(call, message, work);
}

/// Whoever this rank waits for may itself wait for another. All who came give up at about the same
/// time and say so here; who does not is missing.
void Hierarchical::call_the_roll() const {
    constexpr double longest_s = 2;
    const auto missing = ranks_not_here_within(nodes_.all(), std::min(wait_.limit_s, longest_s));
    if (!missing.empty()) throw missing_ranks_error(missing, meeting_.purpose(), wait_.limit_s);
}

bool Hierarchical::all_are_lent() const {
    for (int rank = 0; rank < meeting_.ranks(); ++rank)
        if (meeting_.call_of(rank).window == SharedCall::private_memory) return false;
    return true;
}

ByteRange segment_range(const Message& message, std::size_t begin) {
    return {begin, std::min(begin + Segment::most_bytes, message.bytes)};
}

Segment Hierarchical::direct_segment(const Message& message, std::size_t begin) const {
    Segment segment{message, segment_range(message, begin), {}};
    for (int rank = 0; rank < meeting_.ranks(); ++rank)
        segment.buffers.push_back(
            begin + (is_alone() ? message.data : lent_.address(rank, meeting_.call_of(rank))));
    return segment;
}

Segment Hierarchical::staged_segment(const Message& message, std::size_t begin) const {
    Segment segment{message, segment_range(message, begin), {}};
    const std::size_t turn = (staged_ + begin / Segment::most_bytes) % 2;
    for (int rank = 0; rank < meeting_.ranks(); ++rank)
        segment.buffers.push_back(window_.data() + places_.slot(rank, turn));
    return segment;
}

/// Everything is under way before the first wait.
void Hierarchical::run_direct(const Message& message, RailWork* work) {
    std::vector<Segment> segments;
    for (std::size_t begin = 0; begin < message.bytes; begin += Segment::most_bytes)
        segments.push_back(direct_segment(message, begin));
    if (work != nullptr) {
        for (const Segment& segment : segments) work->begin(segment);
        for (const Segment& segment : segments) work->finish(segment);
    }
    if (is_alone()) return;
    meeting_.meet();
    for (const Segment& segment : segments)
        copy_out(segment, segment.buffers[static_cast<std::size_t>(rank_)]);
    meeting_.meet();
}

/// While one segment travels the next is copied in.
void Hierarchical::run_staged(const SharedCall& call, const Message& message, RailWork* work) {
    Segment segment = staged_segment(message, 0);
    copy_in(call, message, segment);
    const bool is_little = message.bytes <= Segment::most_bytes_of_one_stripe;
    if (is_little) meeting_.begin(call);
    for (std::size_t begin = 0; begin < message.bytes; begin += Segment::most_bytes) {
        if (!is_little) meeting_.meet();
        if (work != nullptr) work->begin(segment);
        const Segment next = staged_segment(message, segment.range.end);
        copy_in(call, message, next);
        if (work != nullptr) work->finish(segment);
        meeting_.meet();
        copy_out(segment, message.data + begin);
        segment = next;
    }
    staged_ += (message.bytes + Segment::most_bytes - 1) / Segment::most_bytes;
}

/// What this rank contributes to the segment.
void Hierarchical::copy_in(const SharedCall& call,
                           const Message& message,
                           const Segment& segment) const {
    ByteRange part = segment.range;
    const int rank = nodes_.all().rank();
    if (call.operation == SharedOperation::broadcast && rank != call.root) return;
    if (call.operation == SharedOperation::all_gather)
        part = common_part(part, byte_stripe(message.bytes, rank, nodes_.all().size()));
    if (part.size() > 0)
        std::memcpy(segment.address(rank_, part.begin), message.data + part.begin, part.size());
}

/// From the owner of each stripe.
void Hierarchical::copy_out(const Segment& segment, std::byte* to) const {
    for (int rail = 0; rail < nodes_.rails(); ++rail) {
        const ByteRange stripe = segment.stripe(rail, nodes_.rails());
        const std::byte* from = segment.address(rail, stripe.begin);
        std::byte* target = to + (stripe.begin - segment.range.begin);
        if (from != target && stripe.size() > 0) std::memcpy(target, from, stripe.size());
    }
}

}  // namespace

std::unique_ptr<Collectives> make_hierarchical_collectives(Nodes nodes) {
    if (nodes.all().size() == 1) return make_single_rank_collectives(Algorithm::hierarchical);
    return std::make_unique<Hierarchical>(std::move(nodes));
}

std::unique_ptr<Collectives> make_hierarchical_collectives(const Communicator& ranks) {
    if (ranks.size() == 1) return make_single_rank_collectives(Algorithm::hierarchical);
    return make_hierarchical_collectives(nodes_with_room(
        ranks, [](const Nodes& nodes) { return Places(nodes.local().size()).end; }));
}

}  // namespace lockstep
