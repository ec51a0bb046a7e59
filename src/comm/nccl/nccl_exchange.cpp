// SPDX-License-Identifier: Apache-2.0
// Explains how GPUs sum in the order of the tree with the traffic of a ring. A ring's
// reduce-scatter moves (P - 1) / P of a bucket from each rank, and adds in the ring's order. Here
// the same bytes go directly to the owners of stripes, who add them when they have all:
//
//     bucket in the slot of    rank 0       rank 1       rank 2        one group of ncclSend/Recv
//                            [ a0|b0|c0 ] [ a1|b1|c1 ] [ a2|b2|c2 ]
//     owner of a: rank 0       a0  <-------- a1  <-------- a2          received: | a1 | a2 |
//     owner of b: rank 1       b0 ---------> b1  <-------- b2          received: | b0 | b2 |
//
//     one kernel on each owner: a0, a1, a2 in the tree's order (tree_sum.hpp), in place of a0
//     the caller's optimizer:   a of the values from a; publish() gathers a, b, c everywhere
//
// A rank whose leaves are not a complete subtree has several partials and sends each. Over several
// nodes there are two rounds of this, inside the nodes and between them (stripe_moves.hpp);
// publish() uses the same rounds in reverse.
//
// reduce() and publish() order the GPU's work and do not wait for it. The streams meet by events:
//
//     caller         fill slots |arrived|     ... backward ...    |waits| reads sums   |waits| next
//                                   v                                 ^                    ^
//     communicator              |waits| group of bucket 0 | kernels |summed| ... | publish |end|
//
// NCCL accepts a group in the background, and only then is it on the stream; kernels must come
// after it. So a bucket waits in `arrivals_` and is issued, round by round, while NCCL accepts the
// previous one. It is complete when its last kernel is on the stream. arrive() and reduce() move
// this on.
//
// What must never happen:
// - A kernel is launched before NCCL has taken its bucket's group: it would read old bytes.
// - A slot is written while a group still reads it: the caller's stream waits for publish().
// - What was received of one bucket is written over before its kernel is done: all buckets share
//   that room, and one stream keeps their order.
// - Ranks issue buckets in another order: one queue, in the order of arrive(), all rounds of one
//   before the next.
// - The host waits inside CUDA, where a stuck rank would keep it for ever.
// - The memory is freed under a group or kernel: the communicator keeps it until the stream is
// done.
//
// Tested: comm/nccl/gpu_exchange_test.cpp (threads: bits, failures, traffic, who waits for whom),
// comm/nccl/stripe_moves_test.cpp (with the kernel), simcuda/exchange_test.cpp (processes: bits of
// the CPU's exchange, waits that are left out, of sums of integers, too).

#include "lockstep/comm/nccl_communicator.hpp"

#include "base/spin.hpp"
#include "nccl/nccl_group.hpp"
#include "nccl/nccl_inside.hpp"
#include "nccl/stripe_moves.hpp"
#include "nccl/tree_sum.hpp"
#include "road/signatures.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <exception>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Inside = NcclCommunicator::Inside;

constexpr const char* reduction = "reduction of a bucket";
constexpr std::array left_to_right{0, 1};  // how two numbers are merged

/// The places in the one buffer, in numbers of 4 bytes: values, slots, what one bucket receives,
/// merges: left_to_right, and each team's.
struct BufferLayout {
    static_assert(sizeof(int) == sizeof(float));
    std::size_t vector, slots, received_size, merges_size;

    std::size_t slot(int index) const { return vector * (1 + static_cast<std::size_t>(index)); }
    std::size_t received() const { return vector * (1 + slots); }
    std::size_t merges() const { return received() + received_size; }
    std::size_t bytes() const { return (merges() + merges_size) * sizeof(float); }
};

/// The memory of NCCL and the kernels. It lives until they are done with it.
struct ExchangeMemory {
    NcclBuffer buffer;
    std::vector<int> merges_on_host;  ///< until they are copied
};

std::vector<int> merges_of(std::span<const StripeTeam> teams) {
    std::vector<int> merges(left_to_right.begin(), left_to_right.end());
    for (const StripeTeam& team : teams)
        merges.insert(merges.end(), team.merges_after.begin(), team.merges_after.end());
    return merges;
}

/// Collective.
void agree_on_layout(Inside& inside, const FlatLayout& layout, const TreePlan& plan) {
    const auto error = layout_difference(gather_all(inside.bootstrap(),
                                                    layout_signature(layout, plan),
                                                    inside.options().collective_deadline_s,
                                                    "the layout of an exchange"));
    if (error) throw *error;
}

class NcclExchange : public GpuExchange, private FlatMemory {
  public:
    NcclExchange(NcclCommunicator& communicator,
                 const FlatLayout& layout,
                 const TreePlan& plan,
                 GpuStream caller)
        : inside_(communicator.inside()),
          layout_(layout),
          plan_(plan),
          rank_(communicator.rank()),
          teams_(stripe_teams(plan, rank_, inside_.hosts())),
          places_{layout.size(),
                  static_cast<std::size_t>(plan.slots()),
                  is_tree() ? most_received(layout, teams_) : 0,
                  merges_of(teams_).size()},
          caller_(caller),
          memory_(std::make_shared<ExchangeMemory>(
              ExchangeMemory{NcclBuffer(communicator, places_.bytes()), merges_of(teams_)})),
          watch_(inside_),
          arrived_(layout.bucket_count()),
          summed_(layout.bucket_count()),
          is_complete_(layout.bucket_count()) {
        for (const StripeTeam& team : teams_)
            published_parts_.push_back(awaited_values(layout_, team, values()));
        inside_.guarded([&] {
            make_events();
            fill_memory();
        });
    }

    /// Leaves the memory to the communicator until the GPU is done with it, also after an abort:
    /// kernels behind a group that was aborted still run.
    ~NcclExchange() override {
        try {
            if (issued_ && std::uncaught_exceptions() == 0) settle_last();
            inside_.end_of("what an exchange left", memory_);
        } catch (const Error&) {
            inside_.runtime()->leave_resources();
        }
    }
    NcclExchange& operator=(NcclExchange&&) = delete;

    FlatMemory& memory() override { return *this; }
    float* slot(int index) override { return floats() + places_.slot(index); }
    float* values() override { return floats(); }
    FloatRange own_stripe(std::size_t bucket) const override {
        return layout_.stripe(bucket, rank_, plan_.ranks());
    }

    void arrive(std::size_t bucket) override {
        if (is_alone()) return;
        inside_.guarded([&] {
            record(*inside_.runtime(), arrived_[bucket], caller_);
            arrivals_.push_back(bucket);
            advance();
        });
    }

    const float* reduce(std::size_t bucket, Wait wait) override {
        if (is_alone()) return slot(0) + own_stripe(bucket).begin;
        return inside_.guarded([&]() -> const float* {
            advance();
            if (wait == Wait::no) {
                if (!is_complete_[bucket] || !inside_.has_passed(summed_[bucket])) return nullptr;
            } else {
                waiting_.count([&] {
                    while (!is_complete_[bucket]) settle();
                });
                let_wait(*inside_.runtime(), caller_, summed_[bucket]);
            }
            return slot(0) + own_stripe(bucket).begin;
        });
    }

    /// The last publication is waited for, so that a stuck rank is seen, and no host runs away.
    void publish() override {
        expect(arrivals_.empty() && !issued_, "what arrived is reduced");
        inside_.guarded([&] {
            if (published_) waiting_.count([&] { inside_.wait_for(*published_); });
            let_wait(inside_.runtime(), inside_.stream(), caller_);
            waiting_.count([&] { gather_values(); });
            published_ = inside_.end_of("publication", memory_);
            let_wait(*inside_.runtime(), caller_, published_->end);
        });
        is_complete_.assign(is_complete_.size(), false);
        ++step_;
    }

    void on_long_wait(StandListener listener) override { watch_.listen(std::move(listener)); }

    void wait() override {
        inside_.guarded([&] {
            waiting_.count([&] {
                while (issued_ || !arrivals_.empty()) settle();
                let_wait(inside_.runtime(), inside_.stream(), caller_);
                inside_.wait_for(*inside_.end_of("exchange", memory_));
            });
        });
    }

    void add_up(std::int64_t* numbers, std::size_t count) override {
        expect(arrivals_.empty() && !issued_, "what arrived is reduced");
        if (plan_.ranks() == 1) return;
        inside_.guarded([&] {
            let_wait(inside_.runtime(), inside_.stream(), caller_);
            waiting_.count([&] {
                NcclGroup group(inside_);
                group.add_up({numbers, count});
                group.end("sum of integers");
            });
            let_wait(inside_.runtime(), caller_, inside_.stream());
        });
    }

    std::string_view name() const override { return "nccl"; }
    double take_wait_s() override { return waiting_.take(); }

  private:
    /// The work of a bucket in one of the teams.
    struct Round {
        std::size_t bucket = 0, team = 0;
    };

    void clear(float* at, std::size_t count) override {
        inside_.guarded(
            [&] { zero_async(*inside_.runtime(), at, count * sizeof(float), caller_); });
    }

    void add(float* into, const float* from, std::size_t count) override {
        const TreeSumLaunch launch{.own = into,
                                   .own_pitch = from - into,
                                   .merges_after = merges(0),
                                   .own_count = 2,
                                   .partials = 2,
                                   .out = into,
                                   .count = static_cast<std::int64_t>(count)};
        inside_.guarded([&] { sum(launch, caller_); });
    }

    void copy(float* to, const float* from, std::size_t count) override {
        inside_.guarded(
            [&] { copy_async(*inside_.runtime(), to, from, count * sizeof(float), caller_); });
    }

    void sum(const TreeSumLaunch& launch, GpuStream stream) {
        check_cuda(inside_.cuda(),
                   inside_.cuda().sum_in_tree_order(launch, stream),
                   "the kernel of the tree's sum");
    }

    float* floats() const { return static_cast<float*>(memory_->buffer.data()); }
    const int* merges(std::size_t first) const {
        return reinterpret_cast<const int*>(floats() + places_.merges()) + first;
    }
    /// Returns the first merge of a team; see merges_of().
    std::size_t first_merge(std::size_t team) const {
        std::size_t first = left_to_right.size();
        for (std::size_t before = 0; before < team; ++before)
            first += teams_[before].merges_after.size();
        return first;
    }
    /// Nobody else has a part of a sum: all are complete on the caller's stream.
    bool is_alone() const { return plan_.ranks() == 1 && plan_.partials().size() == 1; }
    bool is_tree() const { return plan_.summation() == Summation::tree; }
    bool has_traffic(std::size_t bucket) const {
        return plan_.ranks() > 1 && layout_.bucket(bucket).size() > 0;
    }

    void make_events() {
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
            arrived_[b] = make_event(inside_.runtime());
            summed_[b] = make_event(inside_.runtime());
        }
    }

    void fill_memory() {
        const GpuRuntime& runtime = *inside_.runtime();
        const GpuStream stream = inside_.stream();
        const std::span<const int> merges = memory_->merges_on_host;
        zero_async(runtime, floats(), places_.bytes(), stream);
        copy_async(
            runtime, floats() + places_.merges(), merges.data(), merges.size_bytes(), stream);
        let_wait(inside_.runtime(), caller_, stream);
    }

    /// Advances as far as possible without waiting.
    void advance() {
        while (inside_.handle().poll() == nccl::success) {
            if (issued_) complete(*std::exchange(issued_, {}));
            if (issued_) continue;
            if (arrivals_.empty()) return;
            let_wait(*inside_.runtime(), inside_.stream(), arrived_[arrivals_.front()]);
            issue({arrivals_.front(), 0});
            arrivals_.pop_front();
        }
    }

    /// Until NCCL has taken what was issued last, and on from there.
    void settle() {
        expect(issued_ || !arrivals_.empty(), "a bucket arrives before it is reduced");
        inside_.settle(reduction);
        advance();
    }

    void settle_last() {
        if (inside_.handle().state() != NcclState::ready) return;
        try {
            inside_.guarded([&] { inside_.settle(reduction); });
        } catch (const Error&) {
            return;  // all communicators are aborted: NCCL takes nothing any more
        }
    }

    void issue(const Round& round) {
        issued_ = round;
        if (!has_traffic(round.bucket)) return;
        float* const received = floats() + places_.received();
        watch_.begin(
            {.step = step_,
             .bucket = static_cast<int>(round.bucket),
             .round = static_cast<int>(round.team)},
            is_tree() ? awaited_parts(moves_of(round), received) : std::vector<AwaitedPart>{});
        NcclGroup group(inside_);
        if (is_tree())
            move(group, moves_of(round), slot(0), received);
        else
            group.scatter_sum(slot(0), layout_, round.bucket);
        group.close();
    }

    StripeMoves moves_of(const Round& round) const {
        return stripe_moves(layout_, teams_[round.team], round.bucket);
    }

    /// From the flat vectors that begin at `slots`, to `received`.
    void move(NcclGroup& group, const StripeMoves& moves, float* slots, float* received) const {
        for (const auto& [peer, slot, range] : moves.sends) {
            float* const vector = slots + static_cast<std::size_t>(slot) * layout_.size();
            group.send(peer, {vector + range.begin, range.size()});
        }
        for (const auto& [peer, place] : moves.receives)
            group.receive(peer, {received + place.begin, place.size()});
    }

    void complete(const Round& round) {
        if (has_traffic(round.bucket)) watch_.end();
        if (is_tree())
            for (const StripeSum& stripe : moves_of(round).sums) sum(round, stripe);
        if (is_tree() && round.team + 1 < teams_.size())
            return issue({round.bucket, round.team + 1});
        record(*inside_.runtime(), summed_[round.bucket], inside_.stream());
        is_complete_[round.bucket] = true;
    }

    /// In place of the stripe of this rank's first partial: nobody else reads that.
    void sum(const Round& round, const StripeSum& stripe) {
        const StripeTeam& team = teams_[round.team];
        if (team.partials.size() == 1) return;
        const auto is_own = [&](const Partial& partial) { return partial.rank == rank_; };
        const auto first = std::ranges::find_if(team.partials, is_own) - team.partials.begin();
        float* const own = slot(0) + stripe.range.begin;
        const TreeSumLaunch launch{
            .own = own,
            .own_pitch = static_cast<std::int64_t>(layout_.size()),
            .received = floats() + places_.received() + stripe.received,
            .received_pitch = static_cast<std::int64_t>(stripe.range.size()),
            .merges_after = merges(first_merge(round.team)),
            .own_first = static_cast<std::int32_t>(first),
            .own_count = static_cast<std::int32_t>(std::ranges::count_if(team.partials, is_own)),
            .partials = static_cast<std::int32_t>(team.partials.size()),
            .out = own,
            .count = static_cast<std::int64_t>(stripe.range.size())};
        sum(launch, inside_.stream());
    }

    /// NCCL's own all-gather serves where one team's stripes are equal.
    void gather_values() {
        if (plan_.ranks() == 1) return;
        int round = 0;
        for (std::size_t team = teams_.size(); team-- > 0;) {
            watch_.begin({.step = step_, .round = round++}, published_parts_[team]);
            NcclGroup group(inside_);
            for (std::size_t b = 0; b < layout_.bucket_count(); ++b)
                if (teams_.size() > 1 || !group.gather_equal_stripes(values(), layout_, b))
                    move(group, value_moves(layout_, teams_[team], b), values(), values());
            group.end("publication");
            watch_.end();
        }
    }

    Inside& inside_;
    const FlatLayout layout_;
    const TreePlan plan_;
    const int rank_;
    const std::vector<StripeTeam> teams_;
    const BufferLayout places_;
    const GpuStream caller_;
    const std::shared_ptr<const ExchangeMemory> memory_;
    GroupWatch watch_;
    std::vector<std::vector<AwaitedPart>> published_parts_;  ///< by team
    std::int64_t step_ = 0;
    std::vector<CudaEvent> arrived_, summed_;  ///< by bucket
    std::vector<bool> is_complete_;            ///< by bucket: its sum is on the stream
    std::deque<std::size_t> arrivals_;         ///< not issued yet
    std::optional<Round> issued_;              ///< NCCL may not have taken it yet
    std::shared_ptr<const NcclPending> published_;
    WaitClock waiting_;
};

}  // namespace

std::unique_ptr<GpuExchange> make_nccl_exchange(NcclCommunicator& communicator,
                                                const FlatLayout& layout,
                                                const TreePlan& plan,
                                                GpuStream caller) {
    expect(plan.ranks() == communicator.size(), "the plan is for these ranks");
    Inside& inside = communicator.inside();
    inside.guarded([&] { agree_on_layout(inside, layout, plan); });
    return std::make_unique<NcclExchange>(communicator, layout, plan, caller);
}

}  // namespace lockstep
