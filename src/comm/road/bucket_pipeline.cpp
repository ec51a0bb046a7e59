// SPDX-License-Identifier: Apache-2.0
// A queue between backward, which finishes buckets, and the exchange, which sums them. It has two
// marks:
//
//     bucket   0  1  2  3  4  5  6
//              sums    |   on     | still in
//              are     |   their  | backward
//              known   |   way    |
//                   summed_    arrived_
//
// It is moved on by the thread of the step, at each launch and at the end, or by a separate thread
// (CommThread, comm_thread.cpp). The time in which the marks differ is the cost of communication;
// the part for which finish() waits is what the step loses.
//
// What must never happen: a bucket overtakes another. arrive() and reduce() go through the exchange
// in index order, because other ranks' calls are paired with these by nothing but their order; and
// reduce(Wait::no) that finds a bucket unfinished must not look at the next.
//
// Tested: comm/road/progress_test.cpp (both movers, order, failures, ending in mid-step),
// comm/road/overlap_test.cpp (a slow link hides behind backward).

#include "road/bucket_pipeline.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>

namespace lockstep {

void BucketPipeline::restart() {
    expect(is_idle(), "the last step is finished");
    arrived_ = summed_ = 0;
    std::ranges::fill(sums_, nullptr);
}

void BucketPipeline::launch_before(std::size_t end) {
    if (arrived_ == end && is_idle()) return;
    const double begin_s = now_s();
    arrive_before(end);
    reduce(Wait::no);
    launch_s_ += now_s() - begin_s;
}

void BucketPipeline::finish() {
    reduce(Wait::yes);
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

ProgressMode progress_mode_for(int cpus, int compute_threads) {
    return cpus > compute_threads ? ProgressMode::thread : ProgressMode::in_line;
}

std::unique_ptr<BucketPipeline> make_pipeline(Exchange& exchange,
                                              std::size_t buckets,
                                              const ProgressSettings& progress) {
    if (progress.mode == ProgressMode::thread)
        return make_comm_thread(exchange, buckets, progress.cpu);
    return std::make_unique<BucketPipeline>(exchange, buckets);
}

}  // namespace lockstep
