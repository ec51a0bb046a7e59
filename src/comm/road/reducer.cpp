// SPDX-License-Identifier: Apache-2.0
// A rank computes its leaves one after another, and its slots hold the partial sums, like the
// digits of a binary counter. With four leaves, slots are written (w) and added (+):
//
//     leaf 0   slot 0 w                                  0
//     leaf 1   slot 1 w,   0 += 1                        0-1
//     leaf 2   slot 1 w                                  0-1, 2
//     leaf 3   slot 2 w,   1 += 2,   0 += 1              0-3
//
// The merges after a leaf are known when it begins. So each bucket is merged by itself as soon as
// its gradients are complete, while they may still be in cache and backward works on the next one.
// In the last leaf a merged bucket is final for this rank and goes to the exchange at once.
//
// What must never happen:
// - Buckets leave in another order than that of their indices. Backward may finish them in another
//   order on each rank; the ranks' sums meet by position, without a name. So a bucket that is
//   complete early waits for those before it (launch_ready).
// - A bucket leaves while a gradient may still be added to it: only the last micro-batch counts
//   down.
// - The merges depend on when or in which order tensors came: they are fixed by the leaf alone,
//   each element's additions are in one bucket, and so bits depend neither on buckets nor on
//   backward.
// - A bucket is forgotten because a tensor got no gradient: end_leaf() completes all, or the other
//   ranks would wait for ever.
//
// Tested: comm/reducer_test.cpp (bits of the whole tree for any transport, bucket size and order of
// tensors; missing tensors; micro-batches), comm/road/progress_test.cpp (order of launches).

#include "lockstep/comm/reducer.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "road/bucket_pipeline.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

std::vector<LeafPlace> places_of(LeafRange leaves, const TreePlan& plan) {
    std::vector<LeafPlace> places;
    std::vector<Partial> stack;
    for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        const int height = static_cast<int>(stack.size());
        stack.push_back({leaf, 0, 0, height});
        places.push_back({.slot = height, .merges = {}});
        plan.merge(stack, [&](int into, int from) {
            places.back().merges.push_back({into, from});
        });
    }
    return places;
}

}  // namespace

Reducer::Reducer(const FlatLayout& layout,
                 const TreePlan& plan,
                 int rank,
                 Exchange& exchange,
                 const ProgressSettings& progress)
    : layout_(layout),
      plan_(plan),
      exchange_(exchange),
      places_(places_of(leaves_of(rank, plan.ranks(), plan.virtual_ranks()), plan)),
      partials_(static_cast<int>(plan.partials_of_rank(rank).size())),
      waiting_for_(layout.bucket_count()),
      added_in_(layout.tensor_count()),
      complete_(layout.bucket_count()),
      pipeline_(make_pipeline(exchange, layout.bucket_count(), progress)) {}

Reducer::~Reducer() = default;

void Reducer::begin_step() {
    pipeline_->restart();
    rehearses_ = false;
    next_leaf_ = 0;
    next_launch_ = 0;
}

void Reducer::begin_rehearsal() {
    rehearses_ = true;
    next_leaf_ = 0;
}

void Reducer::await_all() {
    for (std::size_t b = 0; b < waiting_for_.size(); ++b) waiting_for_[b] = layout_.tensors_in(b);
    std::ranges::fill(added_in_, 0);
    std::fill(complete_.begin(), complete_.end(), false);
}

float* Reducer::begin_leaf(int micro_batches) {
    expect(!is_last_leaf(), "a leaf is left in this step");
    expect(micro_batches >= 1, "a leaf has a micro-batch");
    const LeafPlace& place = places_[next_leaf_++];
    micro_batches_ = micro_batches;
    micro_batch_ = 1;
    merges_ = place.merges;
    await_all();
    slot_ = exchange_.slot(place.slot);
    exchange_.memory().clear(slot_, layout_.size());
    return slot_;
}

void Reducer::next_micro_batch() {
    expect(micro_batch_ < micro_batches_, "a micro-batch is left in this leaf");
    ++micro_batch_;
}

void Reducer::add(std::size_t tensor) {
    expect(added_in_[tensor] != micro_batch_, "a tensor is added once in a micro-batch");
    added_in_[tensor] = micro_batch_;
    if (micro_batch_ < micro_batches_) return;
    const std::size_t bucket = layout_.bucket_of(tensor);
    if (--waiting_for_[bucket] == 0) complete_bucket(bucket);
}

void Reducer::end_leaf() {
    expect(micro_batch_ == micro_batches_, "every micro-batch of the leaf has run");
    complete_all();
}

void Reducer::begin_together() {
    expect(next_leaf_ == 0, "no leaf of this step was computed by itself");
    next_leaf_ = places_.size();
    micro_batches_ = micro_batch_ = 1;
    merges_ = {};
    await_all();
}

void Reducer::complete_all() {
    for (std::size_t b = 0; b < complete_.size(); ++b)
        if (!complete_[b]) complete_bucket(b);
}

void Reducer::finish() {
    expect(next_launch_ == layout_.bucket_count(), "all leaves are ended");
    const double begin_s = now_s();
    pipeline_->finish();
    exposed_s_ += now_s() - begin_s;
}

const float* Reducer::reduced(std::size_t bucket) const {
    return pipeline_->sum(bucket);
}

double Reducer::take_launch_s() {
    return pipeline_->take_launch_s();
}

OverlapTimes Reducer::take_overlap() {
    return {.busy_s = pipeline_->take_busy_s(), .exposed_s = std::exchange(exposed_s_, 0.0)};
}

std::vector<std::size_t> Reducer::missing() const {
    std::vector<std::size_t> missing;
    for (std::size_t tensor = 0; tensor < added_in_.size(); ++tensor)
        if (added_in_[tensor] == 0) missing.push_back(tensor);
    return missing;
}

void Reducer::complete_bucket(std::size_t bucket) {
    const FloatRange range = layout_.bucket(bucket);
    for (const LeafPlace::Merge& merge : merges_)
        exchange_.memory().add(exchange_.slot(merge.into) + range.begin,
                               exchange_.slot(merge.from) + range.begin,
                               range.size());
    complete_[bucket] = true;
    if (is_last_leaf() && !rehearses_) launch_ready();
}

void Reducer::launch_ready() {
    while (next_launch_ < complete_.size() && complete_[next_launch_]) ++next_launch_;
    pipeline_->launch_before(next_launch_);
}

}  // namespace lockstep
