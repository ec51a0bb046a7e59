// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flat_layout.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

std::size_t whole_lines(std::size_t floats) {
    return (floats + line_floats - 1) / line_floats * line_floats;
}

}  // namespace

FlatLayout::FlatLayout(std::span<const std::size_t> counts,
                       std::size_t state_count,
                       BucketLimits limits)
    : tensors_(counts.size()), bucket_of_(counts.size()) {
    for (std::size_t index = counts.size(); index-- > 0;) {
        const FloatRange lines = {size_, size_ + whole_lines(counts[index])};
        const std::size_t limit_bytes = buckets_.size() <= 1 ? limits.first_bytes : limits.bytes;
        const bool fits =
            !buckets_.empty() && (lines.end - buckets_.back().begin) * sizeof(float) <= limit_bytes;
        if (!fits) {
            buckets_.push_back({lines.begin, lines.begin});
            tensors_in_.push_back(0);
        }
        tensors_[index] = {lines.begin, lines.begin + counts[index]};
        bucket_of_[index] = buckets_.size() - 1;
        buckets_.back().end = size_ = lines.end;
        ++tensors_in_.back();
    }
    state_ = {size_, size_ + state_count};
    buckets_.push_back({size_, size_ + whole_lines(state_count)});
    tensors_in_.push_back(0);
    size_ = buckets_.back().end;
}

FloatRange FlatLayout::stripe(std::size_t bucket, int rank, int ranks) const {
    expect(rank >= 0 && rank < ranks, "0 <= rank < ranks");
    const FloatRange whole = buckets_[bucket];
    const std::size_t lines = whole.size() / line_floats;
    const auto boundary = [&](int r) {
        return whole.begin +
               lines * static_cast<std::size_t>(r) / static_cast<std::size_t>(ranks) * line_floats;
    };
    return {boundary(rank), boundary(rank + 1)};
}

}  // namespace lockstep
