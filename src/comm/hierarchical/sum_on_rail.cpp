// SPDX-License-Identifier: Apache-2.0
// A message is cut into segments, so that a node's ranks can put the next one into the window while
// the rails still sum this one: begin() starts a segment, finish() ends the oldest. (Where the
// buffers are in shared memory already, all segments are begun before the first is finished.)
//
//     local ranks       put 0 | put 1  | put 2  |
//     rail (this file)        | begin 0| begin 1| finish 0, begin 2 ...
//
// The pipeline outlives a call and counts its jobs from the beginning; this object lives for one
// call and so begins to count where the pipeline stands.
//
// bfloat16 is widened here, summed as float32 between nodes too, and rounded at the very end:
// rounding at each node would make the bits depend on how many nodes there are.
//
// What must never happen: a wait for another node past the caller's deadline, or one that ends
// without a name. limit_s without news ends it, and give_up() says who was awaited.
//
// Tested: comm/hierarchical/hierarchical_test.cpp (all types, many segments, who did not come).

#include "lockstep/core/error.hpp"

#include "base/missing_ranks.hpp"
#include "hierarchical/half_floats.hpp"
#include "hierarchical/rail_work.hpp"

#include <algorithm>
#include <cstring>

namespace lockstep {
namespace {

void widen_bfloat16(const std::byte* from, float* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        std::uint16_t half = 0;
        std::memcpy(&half, from + 2 * i, sizeof half);
        to[i] = from_bfloat16(half);
    }
}

void round_to_bfloat16(const float* from, std::byte* to, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint16_t half = to_bfloat16(from[i]);
        std::memcpy(to + 2 * i, &half, sizeof half);
    }
}

}  // namespace

void RailWait::give_up(std::vector<int> awaited) const {
    std::ranges::sort(awaited);
    awaited.erase(std::unique(awaited.begin(), awaited.end()), awaited.end());
    throw missing_ranks_error(awaited, meeting.purpose(), limit_s);
}

void SumOnRail::begin(const Segment& segment) {
    const int rail = wait_.nodes.local().rank();
    const ByteRange own = segment.stripe(rail, wait_.nodes.rails());
    const DataType type = segment.message.type;
    if (begun_ == 0) finished_ = begun_ = pipeline_.finished();
    ++begun_;
    if (type == DataType::bfloat16) {
        widen(segment, own);
    } else {
        RailJob job{type, {}, segment.address(rail, own.begin), own.size() / size_of(type)};
        for (int k = 0; k < wait_.nodes.local().size(); ++k)
            job.inputs.push_back(segment.address(k, own.begin));
        pipeline_.submit(std::move(job));
    }
    pipeline_.advance();
}

void SumOnRail::widen(const Segment& segment, ByteRange own) {
    const std::size_t count = own.size() / 2;
    const auto ranks = static_cast<std::size_t>(wait_.nodes.local().size());
    std::vector<float>& wide = widened_.emplace_back(ranks * count);
    const auto part = [&](std::size_t k) { return wide.data() + k * count; };
    RailJob job{DataType::float32, {}, reinterpret_cast<std::byte*>(part(0)), count};
    for (std::size_t k = 0; k < ranks; ++k) {
        widen_bfloat16(segment.address(static_cast<int>(k), own.begin), part(k), count);
        job.inputs.push_back(reinterpret_cast<std::byte*>(part(k)));
    }
    pipeline_.submit(std::move(job));
}

void SumOnRail::finish(const Segment& segment) {
    ++finished_;
    for (pipeline_.advance(); pipeline_.finished() < finished_; pipeline_.advance())
        if (!spin_until([&] { return pipeline_.has_news(); }, Patience::none, wait_.limit_s))
            wait_.give_up(pipeline_.awaited_ranks());
    if (segment.message.type != DataType::bfloat16) return;
    const int rail = wait_.nodes.local().rank();
    const ByteRange own = segment.stripe(rail, wait_.nodes.rails());
    round_to_bfloat16(widened_.front().data(), segment.address(rail, own.begin), own.size() / 2);
    widened_.pop_front();
}

}  // namespace lockstep
