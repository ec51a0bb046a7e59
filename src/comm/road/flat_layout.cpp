// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flat_layout.hpp"

#include "lockstep/core/error.hpp"

#include <numeric>

namespace lockstep {
namespace {

std::vector<std::size_t> reverse_order(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    return order;
}

bool is_permutation_of_indices(std::span<const std::size_t> order, std::size_t count) {
    std::vector<bool> seen(count);
    for (const std::size_t index : order) {
        if (index >= count || seen[index]) return false;
        seen[index] = true;
    }
    return order.size() == count;
}

}  // namespace

FloatRange part_of(FloatRange whole, int index, int of) {
    expect(index >= 0 && index < of, "one of the parts");
    const std::size_t lines = whole.size() / line_floats;
    const auto boundary = [&](int i) {
        return whole.begin +
               lines * static_cast<std::size_t>(i) / static_cast<std::size_t>(of) * line_floats;
    };
    return {boundary(index), index + 1 == of ? whole.end : boundary(index + 1)};
}

FlatLayout::FlatLayout(std::span<const std::size_t> counts,
                       std::size_t state_count,
                       BucketLimits limits,
                       std::span<const std::size_t> order)
    : tensors_(counts.size()), bucket_of_(counts.size()) {
    const std::vector<std::size_t> reversed = reverse_order(counts.size());
    if (order.empty()) order = reversed;
    expect(is_permutation_of_indices(order, counts.size()), "every tensor is in the order once");
    for (const std::size_t index : order) append(index, counts[index], limits);
    state_ = {size_, size_ + state_count};
    buckets_.push_back({size_, size_ + rounded_to_lines(state_count)});
    tensors_in_.push_back(0);
    size_ = buckets_.back().end;
}

void FlatLayout::append(std::size_t index, std::size_t count, BucketLimits limits) {
    const FloatRange lines = {size_, size_ + rounded_to_lines(count)};
    const std::size_t limit_bytes = buckets_.size() <= 1 ? limits.first_bytes : limits.bytes;
    const bool fits =
        !buckets_.empty() && (lines.end - buckets_.back().begin) * sizeof(float) <= limit_bytes;
    if (!fits) {
        buckets_.push_back({lines.begin, lines.begin});
        tensors_in_.push_back(0);
    }
    tensors_[index] = {lines.begin, lines.begin + count};
    bucket_of_[index] = buckets_.size() - 1;
    buckets_.back().end = size_ = lines.end;
    ++tensors_in_.back();
}

FloatRange FlatLayout::stripe(std::size_t bucket, int rank, int ranks) const {
    return part_of(buckets_[bucket], rank, ranks);
}

}  // namespace lockstep
