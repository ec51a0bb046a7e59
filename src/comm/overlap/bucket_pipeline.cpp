// SPDX-License-Identifier: Apache-2.0
#include "overlap/bucket_pipeline.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>

namespace lockstep {

void BucketPipeline::restart() {
    expect(is_idle(), "the last step is finished");
    arrived_ = summed_ = 0;
    std::ranges::fill(sums_, nullptr);
}

void BucketPipeline::arrive_before(std::size_t end) {
    if (arrived_ < end && is_idle()) busy_since_s_ = now_s();
    while (arrived_ < end) exchange_.arrive(arrived_++);
}

bool BucketPipeline::reduce(Wait wait) {
    if (is_idle()) return true;
    while (!is_idle()) {
        const float* sum = exchange_.reduce(summed_, wait);
        if (sum == nullptr) return false;
        sums_[summed_++] = sum;
    }
    busy_s_ += now_s() - busy_since_s_;
    return true;
}

}  // namespace lockstep
