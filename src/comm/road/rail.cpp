// SPDX-License-Identifier: Apache-2.0
// Large sums are cut into chunks, and a few are processed at a time: one travels while another is
// added and a third is sent:
//
//     jobs_      [ bucket 0: chunks a b c | bucket 1: chunks d e ]
//     lanes_     0: a, in, step 1    1: b, in, step 0    2: c    3: d      next: e, in lane 0
//
// What must never happen:
// - A chunk runs in another lane on another node: messages of a lane are told apart by their order
//   alone. Lanes are taken strictly in turn, and where the next one is busy nothing begins, even if
//   others are idle.
// - A node picks another plan for a job than its peers: the choice depends on the job's size alone.
//
// RailSum moves one chunk through a RailPlan. It is a state machine that never waits, because
// several chunks are processed at a time and the same thread also moves buckets on.
//
//     idle --begin--> in: exchange, add, step 0 -> 1 -> ... --> out: ... 1 -> 0 --> idle
//
// `pieces_` are the present places of the sum's parts: at first this node's inputs, then sums, each
// in the place of its first part, followed by received pieces.
//
// What must never happen:
// - Memory is overwritten that a message still reads. All requests of a step are through before
//   advance() adds; a received piece has room of its own for the whole chunk's time; on the way
//   out, only that part of `out` is written whose pieces have been sent on the way in.
// - `out` is written before the sum is whole: it may be one of the inputs.
// - Two chunks' messages meet: each lane has its tag, and in one lane MPI keeps the order, also of
//   a note that goes ahead of a message that is timed (link_timer.hpp).
//
// Tested: comm/road/rail_plan_test.cpp (the plan), node_exchange_test.cpp (many chunks).

#include "road/rail.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "base/aligned_floats.hpp"
#include "base/mpi_check.hpp"
#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t longest_message_floats = std::size_t{1} << 28;  // MPI counts in an int

/// Below, the number of messages costs more than their bytes.
constexpr std::size_t longest_short_message_bytes = 32 << 10;

/// Large enough that a chunk's messages are few, small enough that several fit into a cache.
constexpr std::size_t chunk_bytes = 512 << 10;

/// A chunk has a part of each owner's share, which is a message of its own. Halves of this length
/// still have messages that can be timed.
std::size_t chunk_floats_for(int owners) {
    const std::size_t messages = static_cast<std::size_t>(2 * owners) * LinkTimer::least_bytes;
    return std::max(chunk_bytes, messages) / sizeof(float);
}

/// One in so many chunks is timed, more at first, so that short runs have figures; all lanes have
/// some.
std::size_t timed_every(std::size_t chunks) {
    return chunks < 1000 ? 5 : 51;
}

/// Of three nodes two never meet: if all messages are slow, the third's link may be slow, or all.
/// So half of the timed sums have them meet, with an eighth more bytes. To owners, all meet, and
/// the timed messages are another node's in each turn.
int turns(int nodes, RailKind kind) {
    constexpr int most = 16;
    if (kind == RailKind::to_owners) return std::min(nodes - 1, most);
    return nodes == 3 ? 2 : 1;
}

}  // namespace

/// The data of a sum: inputs of this node in the order of their numbers, and the place of the sum.
/// Inputs are overwritten; `out` may be one of them. To owners, only `slice` of each share is
/// summed: a chunk has a part of every share.
struct RailTask : RailJob {
    const RailPlan* plan = nullptr;
    bool is_timed = false;  ///< its long messages are timed; the same on all nodes
    Share slice = Share::all;
};

/// Sums one chunk at a time: begin(), then advance() whenever has_news(), until is_idle().
class RailSum {
  public:
    /// `rail` and `meter` must outlive this. Simultaneous chunks have different tags. `meter`: null
    /// if nothing is timed.
    RailSum(const Rail& rail, int tag, LinkMeter* meter) : rail_(rail), messages_(rail, tag) {
        if (meter != nullptr) timer_.emplace(*meter);
    }
    RailSum& operator=(RailSum&&) = delete;

    void begin(RailTask task) {
        expect(is_idle(), "one chunk at a time");
        task_ = std::move(task);
        pieces_ = task_.inputs;
        ranges_ = {{0, task_.count}};
        step_ = 0;
        const RailPlan& plan = *task_.plan;
        add_up(plan.own, own_ranges());
        if (plan.steps.empty()) return;
        make_room();
        phase_ = Phase::in;
        post_in();
    }

    bool is_idle() const { return phase_ == Phase::idle; }

    /// Returns true if the messages of the current step have arrived. Never waits.
    bool has_news() {
        if (is_idle()) return false;
        const bool is_timed = timer_ && timer_->is_running();
        if (is_timed) timer_->look(now_s());
        const bool is_through = messages_.are_through();
        if (is_timed) tell_timer();
        return is_through;
    }

    void advance() {
        messages_.clear();
        if (phase_ == Phase::in) {
            take_in();
            if (step_ < task_.plan->steps.size()) return post_in();
            phase_ = Phase::out;
        }
        next_out();
    }

    /// Returns the rank on the rail whose message is waited for; -1: none.
    int awaited_rank() const { return messages_.awaited_rank(); }

  private:
    enum class Phase { idle, in, out };

    const RailStep& step() const { return task_.plan->steps[step_]; }
    std::span<const RailStep> steps_at_once() const {
        const std::span<const RailStep> left = std::span(task_.plan->steps).subspan(step_);
        return task_.plan->is_one_step() ? left : left.first(1);
    }

    FloatRange sliced(FloatRange range, Share share) const {
        return share_of(share_of(range, share), task_.slice);
    }

    /// Those in which this node's inputs are added first.
    std::vector<FloatRange> own_ranges() const {
        const RailPlan& plan = *task_.plan;
        if (!plan.is_one_step()) return ranges_;
        std::vector<FloatRange> ranges = {sliced(ranges_.back(), plan.steps.front().keeps)};
        for (const RailStep& step : plan.steps)
            ranges.push_back(sliced(ranges_.back(), step.sends));
        return ranges;
    }

    /// Sends this node's pieces of what each peer keeps; the peers' pieces of what this node keeps
    /// come behind its own. Of steps at once, the first is timed.
    void post_in() {
        const std::size_t own = pieces_.size();
        for (const RailStep& step : steps_at_once()) {
            const FloatRange kept = sliced(ranges_.back(), step.keeps);
            const auto received = static_cast<std::size_t>(step.received);
            const bool is_first = &step == &this->step();
            if (is_first) begin_receiving(step.from, kept.size() * sizeof(float) * received);
            for (std::size_t i = 0; i < received; ++i) {
                // Float 0 would lie before the buffer: every access adds at least kept.begin.
                pieces_.push_back(room_.get() + room_used_ - kept.begin);
                receive(step.from, pieces_.back(), kept);
                room_used_ += rounded_to_lines(kept.size());
            }
            if (is_first) receives_ = messages_.count();
        }
        for (const RailStep& step : steps_at_once()) {
            const FloatRange sent = sliced(ranges_.back(), step.sends);
            if (&step == &this->step()) begin_sending(step.peer, sent.size() * sizeof(float) * own);
            for (std::size_t i = 0; i < own; ++i) send(step.peer, pieces_[i], sent);
        }
    }

    void take_in() {
        const RailStep& last = steps_at_once().back();
        const FloatRange kept = sliced(ranges_.back(), last.keeps);
        ranges_.push_back(kept);
        if (last.keeps != Share::none) add_up(last.sums, {&kept, 1});
        step_ += steps_at_once().size();
    }

    /// The finished part goes to the peer, the part that the peer finished comes back.
    void post_out() {
        const FloatRange before = ranges_[step_];
        const FloatRange received = share_of(before, step().sends);
        const FloatRange sent = share_of(before, step().keeps);
        begin_receiving(step().peer, received.size() * sizeof(float));
        receive(step().peer, task_.out, received);
        receives_ = messages_.count();
        begin_sending(step().peer, sent.size() * sizeof(float));
        send(step().peer, task_.out, sent);
    }

    /// Steps back to the last step on which something is still to be exchanged.
    void next_out() {
        while (step_ > 0 && !task_.plan->is_one_step()) {
            --step_;
            if (step().sends == Share::all && step().keeps == Share::all) continue;
            return post_out();
        }
        phase_ = Phase::idle;
    }

    /// Both sides know how long a message is, and so whether a note goes ahead of it.
    bool has_note(std::size_t bytes) const {
        return timer_ && task_.is_timed && bytes >= LinkTimer::least_bytes;
    }

    /// Messages are timed from here on, if they are timed.
    void begin_receiving(int node, std::size_t bytes) {
        if (!has_note(bytes)) return;
        messages_.receive(node, nullptr, 0);
        timer_->begin(rail_.rank_on_node[static_cast<std::size_t>(node)], bytes, now_s());
    }

    void begin_sending(int node, std::size_t bytes) {
        if (has_note(bytes)) messages_.send(node, nullptr, 0);
    }

    void tell_timer() {
        if (timer_->awaits_note() && messages_.are_through(1)) timer_->note_came();
        if (timer_->awaits_message() && messages_.are_through(receives_))
            timer_->message_came(now_s());
    }

    void send(int node, const float* from, FloatRange range) {
        if (range.size() > 0) messages_.send(node, from + range.begin, range.size());
    }

    void receive(int node, float* to, FloatRange range) {
        if (range.size() > 0) messages_.receive(node, to + range.begin, range.size());
    }

    /// Replaces pieces by their sums, which lie where the first part of each lay; the whole sum
    /// goes to `out`.
    void add_up(std::span<const Combination> sums, std::span<const FloatRange> ranges) {
        std::vector<float*> results;
        for (const Combination& sum : sums) {
            const bool is_whole = sum.whole == task_.plan->root;
            results.push_back(is_whole ? task_.out : pieces_[sum.from.front()]);
            if (sum.from.size() == 1 && !is_whole) continue;
            for (const FloatRange& range : ranges) {
                std::vector<const float*> inputs;
                for (const std::size_t i : sum.from) inputs.push_back(pieces_[i] + range.begin);
                const std::array<float*, 1> output = {results.back() + range.begin};
                sum_into(sum.merges_after, inputs, output, range.size());
            }
        }
        pieces_ = std::move(results);
    }

    /// The largest that all steps together receive; some where that is nothing, for pointers are
    /// calculated from it.
    void make_room() {
        std::size_t needed = line_floats;
        FloatRange range = ranges_.front();
        for (const RailStep& step : task_.plan->steps) {
            const FloatRange kept = sliced(range, step.keeps);
            needed += static_cast<std::size_t>(step.received) * rounded_to_lines(kept.size());
            if (!task_.plan->is_one_step()) range = kept;
        }
        room_used_ = 0;
        if (needed <= room_floats_) return;
        room_ = make_aligned_floats(needed);
        room_floats_ = needed;
    }

    const Rail& rail_;
    RailTask task_;
    Phase phase_ = Phase::idle;
    std::size_t step_ = 0;
    std::vector<float*> pieces_;      ///< float 0 of the chunk in each piece
    std::vector<FloatRange> ranges_;  ///< before each step, and after the last
    RailMessages messages_;           ///< receives first; for timed ones the note's
    std::size_t receives_ = 0;        ///< receives of the first step
    std::optional<LinkTimer> timer_;
    AlignedFloats room_;  ///< room for received data
    std::size_t room_floats_ = 0, room_used_ = 0;
};

struct RailPipeline::Lane : RailSum {
    using RailSum::RailSum;
    std::size_t job = 0;  ///< number since the begin
};

RailPipeline::RailPipeline(const Rail& rail,
                           const SumTree& tree,
                           std::span<const int> node_of_input,
                           int node,
                           ShardState shards,
                           LinkMeter* meter)
    : rail_(rail) {
    const int nodes = static_cast<int>(rail_.rank_on_node.size());
    const bool has_owners = shards == ShardState::all && nodes > 1;
    const auto plan = [&](RailKind kind, int turn = 0) {
        if (has_owners) kind = RailKind::to_owners;
        return make_rail_plan(tree, node_of_input, node, nodes, kind, turn);
    };
    chunk_floats_ = chunk_floats_for(has_owners ? nodes : 1);
    short_plan_ = plan(RailKind::short_message);
    long_plan_ = plan(RailKind::long_message);
    for (int turn = 0; meter != nullptr && turn < turns(nodes, long_plan_.kind); ++turn)
        timed_plans_.push_back(plan(RailKind::long_message, turn));
    for (std::size_t tag = 0; tag < lane_count; ++tag)
        lanes_.push_back(std::make_unique<Lane>(rail_, static_cast<int>(tag), meter));
}

RailPipeline::~RailPipeline() = default;

/// Chunks need lanes only where messages travel.
void RailPipeline::submit(RailJob job) {
    std::size_t chunks = job.count == 0 ? 0 : 1;
    if (!long_plan_.steps.empty()) chunks = (job.count + chunk_floats_ - 1) / chunk_floats_;
    jobs_.push_back({std::move(job), static_cast<int>(chunks)});
}

void RailPipeline::advance() {
    for (const auto& lane : lanes_) advance_lane(*lane);
    while (begin_chunk()) continue;
    for (; !jobs_.empty() && jobs_.front().is_done(); ++finished_) jobs_.pop_front();
}

bool RailPipeline::has_news() const {
    return std::ranges::any_of(lanes_, [](const auto& lane) { return lane->has_news(); });
}

int RailPipeline::awaited_rank() const {
    for (const auto& lane : lanes_)
        if (!lane->is_idle()) return lane->awaited_rank();
    return -1;
}

bool RailPipeline::times_next_chunk() const {
    return !timed_plans_.empty() && chunks_ % timed_every(chunks_) == 0;
}

const RailPlan& RailPipeline::plan_for(const RailJob& job) const {
    const bool is_short = job.count * sizeof(float) <= longest_short_message_bytes;
    if (is_short) return short_plan_;
    if (!times_next_chunk()) return long_plan_;
    return timed_plans_[chunks_ / timed_every(chunks_) % timed_plans_.size()];
}

/// In order, and in the same lane on every node: a lane's messages are told apart by nothing else.
/// Returns false if the lane is busy, or nothing is left to begin.
bool RailPipeline::begin_chunk() {
    Lane& lane = *lanes_[next_lane_];
    if (!lane.is_idle()) return false;
    const auto active =
        std::ranges::find_if(jobs_, [](const ActiveJob& each) { return each.begun < each.chunks; });
    if (active == jobs_.end()) return false;
    lane.job = finished_ + static_cast<std::size_t>(active - jobs_.begin());
    lane.begin(task_of(*active));
    ++chunks_;
    ++active->begun;
    if (!lane.is_idle()) ++active->under_way;
    next_lane_ = (next_lane_ + 1) % lane_count;
    return true;
}

/// Of the next chunk: a slice of each share, or a range of its own.
RailTask RailPipeline::task_of(const ActiveJob& active) const {
    const RailJob& job = active.job;
    const Share chunk{active.begun, active.chunks};
    RailTask task{job, &plan_for(job), times_next_chunk()};
    if (task.plan->is_one_step()) {
        task.slice = chunk;
        return task;
    }
    const FloatRange range = share_of({0, job.count}, chunk);
    for (float*& input : task.inputs) input += range.begin;
    task.out += range.begin;
    task.count = range.size();
    return task;
}

void RailPipeline::advance_lane(Lane& lane) {
    if (lane.is_idle()) return;
    while (lane.has_news()) lane.advance();
    if (lane.is_idle()) --jobs_[lane.job - finished_].under_way;
}

void RailMessages::clear() {
    requests_.clear();
    ranks_.clear();
    passed_ = 0;
}

template <class Post>
void RailMessages::post(int node, std::size_t count, Post&& post_part) {
    const int rank = rail_.rank_on_node[static_cast<std::size_t>(node)];
    std::size_t at = 0;
    do {
        const std::size_t part = std::min(longest_message_floats, count - at);
        ranks_.push_back(rank);
        post_part(at, static_cast<int>(part), rank, &requests_.emplace_back(MPI_REQUEST_NULL));
        at += part;
    } while (at < count);
}

void RailMessages::send(int node, const float* from, std::size_t count) {
    post(node, count, [&](std::size_t at, int part, int rank, MPI_Request* request) {
        check_mpi(MPI_Isend(from + at, part, MPI_FLOAT, rank, tag_, rail_.ranks.handle(), request),
                  "MPI_Isend");
    });
}

void RailMessages::receive(int node, float* to, std::size_t count) {
    post(node, count, [&](std::size_t at, int part, int rank, MPI_Request* request) {
        check_mpi(MPI_Irecv(to + at, part, MPI_FLOAT, rank, tag_, rail_.ranks.handle(), request),
                  "MPI_Irecv");
    });
}

bool RailMessages::are_through(std::size_t count) {
    for (int done = 1; passed_ < count && done != 0;) {
        check_mpi(MPI_Test(&requests_[passed_], &done, MPI_STATUS_IGNORE), "MPI_Test");
        if (done != 0) ++passed_;
    }
    return passed_ >= count;
}

}  // namespace lockstep
