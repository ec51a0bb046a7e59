// SPDX-License-Identifier: Apache-2.0
// Moves one chunk through a RailPlan. It is a state machine that never waits, because several
// chunks are processed at a time (rail_pipeline.cpp) and the same thread also moves buckets on.
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
//   a note that goes ahead of a message that is timed (link_timer.cpp).
//
// Tested: comm/road/rail_plan_test.cpp (the plan), node_exchange_test.cpp (many chunks).
#include "road/rail_sum.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "base/mpi_check.hpp"
#include "sums/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t longest_message_floats = std::size_t{1} << 28;  // MPI counts in an int

}  // namespace

void RailSum::begin(RailTask task) {
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

bool RailSum::has_news() {
    if (is_idle()) return false;
    const bool is_timed = timer_ && timer_->is_running();
    if (is_timed) timer_->look(now_s());
    const bool is_through = messages_.are_through();
    if (is_timed) tell_timer();
    return is_through;
}

void RailSum::tell_timer() {
    if (timer_->awaits_note() && messages_.are_through(1)) timer_->note_came();
    if (timer_->awaits_message() && messages_.are_through(receives_)) timer_->message_came(now_s());
}

void RailSum::advance() {
    messages_.clear();
    if (phase_ == Phase::in) {
        take_in();
        if (step_ < task_.plan->steps.size()) return post_in();
        phase_ = Phase::out;
    }
    next_out();
}

std::span<const RailStep> RailSum::steps_at_once() const {
    const std::span<const RailStep> left = std::span(task_.plan->steps).subspan(step_);
    return task_.plan->is_one_step() ? left : left.first(1);
}

FloatRange RailSum::sliced(FloatRange range, Share share) const {
    return share_of(share_of(range, share), task_.slice);
}

/// Those in which this node's inputs are added first.
std::vector<FloatRange> RailSum::own_ranges() const {
    const RailPlan& plan = *task_.plan;
    if (!plan.is_one_step()) return ranges_;
    std::vector<FloatRange> ranges = {sliced(ranges_.back(), plan.steps.front().keeps)};
    for (const RailStep& step : plan.steps) ranges.push_back(sliced(ranges_.back(), step.sends));
    return ranges;
}

/// The largest that all steps together receive; some where that is nothing, for pointers are
/// calculated from it.
void RailSum::make_room() {
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

/// Sends this node's pieces of what each peer keeps; the peers' pieces of what this node keeps come
/// behind its own. Of steps at once, the first is timed.
void RailSum::post_in() {
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

void RailSum::take_in() {
    const RailStep& last = steps_at_once().back();
    const FloatRange kept = sliced(ranges_.back(), last.keeps);
    ranges_.push_back(kept);
    if (last.keeps != Share::none) add_up(last.sums, {&kept, 1});
    step_ += steps_at_once().size();
}

/// The finished part goes to the peer, the part that the peer finished comes back.
void RailSum::post_out() {
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
void RailSum::next_out() {
    while (step_ > 0 && !task_.plan->is_one_step()) {
        --step_;
        if (step().sends == Share::all && step().keeps == Share::all) continue;
        return post_out();
    }
    phase_ = Phase::idle;
}

/// Both sides know how long a message is, and so whether a note goes ahead of it.
bool RailSum::has_note(std::size_t bytes) const {
    return timer_ && task_.is_timed && bytes >= LinkTimer::least_bytes;
}

/// Messages are timed from here on, if they are timed.
void RailSum::begin_receiving(int node, std::size_t bytes) {
    if (!has_note(bytes)) return;
    messages_.receive(node, nullptr, 0);
    timer_->begin(rail_.rank_on_node[static_cast<std::size_t>(node)], bytes, now_s());
}

void RailSum::begin_sending(int node, std::size_t bytes) {
    if (has_note(bytes)) messages_.send(node, nullptr, 0);
}

void RailSum::send(int node, const float* from, FloatRange range) {
    if (range.size() > 0) messages_.send(node, from + range.begin, range.size());
}

void RailSum::receive(int node, float* to, FloatRange range) {
    if (range.size() > 0) messages_.receive(node, to + range.begin, range.size());
}

/// Replaces pieces by their sums, which lie where the first part of each lay; the whole sum goes to
/// `out`.
void RailSum::add_up(std::span<const Combination> sums, std::span<const FloatRange> ranges) {
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
