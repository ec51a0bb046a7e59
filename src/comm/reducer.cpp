// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/reducer.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {

Reducer::Reducer(const FlatLayout& layout, const TreePlan& plan, int rank, Exchange& exchange)
    : layout_(layout),
      plan_(plan),
      exchange_(exchange),
      rank_(rank),
      leaves_(leaves_of(rank, plan.ranks(), plan.virtual_ranks())),
      waiting_for_(layout.bucket_count()),
      added_(layout.tensor_count()),
      complete_(layout.bucket_count()),
      reduced_(layout.bucket_count()) {}

void Reducer::begin_step() {
    expect(next_launch_ == next_reduce_, "the last step is finished");
    next_leaf_ = 0;
    next_launch_ = next_reduce_ = 0;
    stack_.clear();
    std::ranges::fill(reduced_, nullptr);
}

float* Reducer::begin_leaf() {
    expect(!is_last_leaf(), "a leaf is left in this step");
    const int height = static_cast<int>(stack_.size());
    stack_.push_back({leaves_.begin + next_leaf_, 0, rank_, height});
    ++next_leaf_;
    merges_.clear();
    plan_.merge(stack_, [&](int into, int from) { merges_.push_back({into, from}); });
    for (std::size_t b = 0; b < waiting_for_.size(); ++b) waiting_for_[b] = layout_.tensors_in(b);
    std::fill(added_.begin(), added_.end(), false);
    std::fill(complete_.begin(), complete_.end(), false);
    slot_ = exchange_.slot(height);
    std::memset(slot_, 0, layout_.size() * sizeof(float));
    return slot_;
}

void Reducer::add(std::size_t tensor) {
    expect(!added_[tensor], "a tensor is added once in a leaf");
    added_[tensor] = true;
    const std::size_t bucket = layout_.bucket_of(tensor);
    if (--waiting_for_[bucket] == 0) complete_bucket(bucket);
}

void Reducer::end_leaf() {
    note_missing();
    for (std::size_t b = 0; b < complete_.size(); ++b)
        if (!complete_[b]) complete_bucket(b);
}

void Reducer::finish() {
    expect(next_launch_ == layout_.bucket_count(), "all leaves are ended");
    progress(Wait::yes);
}

void Reducer::note_missing() {
    missing_.clear();
    for (std::size_t tensor = 0; tensor < added_.size(); ++tensor) {
        if (added_[tensor]) continue;
        missing_.push_back(tensor);
        const FloatRange range = layout_.tensor(tensor);
        std::fill(slot_ + range.begin, slot_ + range.end, 0.0f);
    }
}

void Reducer::complete_bucket(std::size_t bucket) {
    const FloatRange range = layout_.bucket(bucket);
    for (const SlotMerge& merge : merges_)
        add_into(exchange_.slot(merge.into) + range.begin,
                 exchange_.slot(merge.from) + range.begin,
                 range.size());
    complete_[bucket] = true;
    if (is_last_leaf()) launch_ready();
}

void Reducer::launch_ready() {
    while (next_launch_ < complete_.size() && complete_[next_launch_])
        exchange_.arrive(next_launch_++);
    progress(Wait::no);
}

void Reducer::progress(Wait wait) {
    while (next_reduce_ < next_launch_) {
        const float* sum = exchange_.reduce(next_reduce_, wait);
        if (sum == nullptr) return;
        reduced_[next_reduce_++] = sum;
    }
}

}  // namespace lockstep
