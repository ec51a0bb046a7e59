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
// Tested: comm/road/node_exchange_test.cpp (large buckets).

#include "road/rail_pipeline.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

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
        lanes_.push_back({std::make_unique<RailSum>(rail_, static_cast<int>(tag), meter), 0});
}

/// Chunks need lanes only where messages travel.
void RailPipeline::submit(RailJob job) {
    std::size_t chunks = job.count == 0 ? 0 : 1;
    if (!long_plan_.steps.empty()) chunks = (job.count + chunk_floats_ - 1) / chunk_floats_;
    jobs_.push_back({std::move(job), static_cast<int>(chunks)});
}

void RailPipeline::advance() {
    for (Lane& lane : lanes_) advance_lane(lane);
    while (const auto next = next_to_begin()) begin_chunk(*next);
    for (; !jobs_.empty() && jobs_.front().is_done(); ++finished_) jobs_.pop_front();
}

bool RailPipeline::has_news() const {
    return std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.sum->has_news(); });
}

int RailPipeline::awaited_rank() const {
    for (const Lane& lane : lanes_)
        if (!lane.sum->is_idle()) return lane.sum->awaited_rank();
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
std::optional<std::size_t> RailPipeline::next_to_begin() const {
    if (!lanes_[next_lane_].sum->is_idle()) return std::nullopt;
    const auto next = std::ranges::find_if(
        jobs_, [](const ActiveJob& active) { return active.begun < active.chunks; });
    if (next == jobs_.end()) return std::nullopt;
    return static_cast<std::size_t>(next - jobs_.begin());
}

void RailPipeline::begin_chunk(std::size_t position) {
    ActiveJob& active = jobs_[position];
    Lane& lane = lanes_[next_lane_];
    lane.job = finished_ + position;
    lane.sum->begin(task_of(active));
    ++chunks_;
    ++active.begun;
    if (!lane.sum->is_idle()) ++active.under_way;
    next_lane_ = (next_lane_ + 1) % lane_count;
}

/// Of the next chunk: a slice of each share, or a range of its own.
RailTask RailPipeline::task_of(const ActiveJob& active) const {
    const RailJob& job = active.job;
    const Share chunk{active.begun, active.chunks};
    RailTask task{&plan_for(job), job.inputs, job.out, job.count, times_next_chunk()};
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
    if (lane.sum->is_idle()) return;
    while (lane.sum->has_news()) lane.sum->advance();
    if (lane.sum->is_idle()) --jobs_[lane.job - finished_].under_way;
}

}  // namespace lockstep
