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
#include <ranges>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t lane_count = 4;

/// Below, the number of messages costs more than their bytes.
constexpr std::size_t longest_short_message_bytes = 32 << 10;

/// Large enough that a chunk's messages are few, small enough that several fit into a cache.
constexpr std::size_t chunk_bytes = 512 << 10;

/// One in so many chunks is timed, more at first, so that short runs have figures; all lanes have
/// some.
std::size_t timed_every(std::size_t chunks) {
    return chunks < 1000 ? 5 : 51;
}

/// Of three nodes two never meet: if all messages are slow, the third's link may be slow, or all.
/// So half of the timed sums have them meet, with an eighth more bytes.
int turns(int nodes) {
    return nodes == 3 ? 2 : 1;
}

}  // namespace

RailPipeline::RailPipeline(
    Rail rail, const SumTree& tree, std::span<const int> node_of_input, int node, LinkMeter* meter)
    : rail_(std::move(rail)) {
    const int nodes = static_cast<int>(rail_.rank_on_node.size());
    const auto plan = [&](RailKind kind, int turn = 0) {
        return make_rail_plan(tree, node_of_input, node, nodes, kind, turn);
    };
    short_plan_ = plan(RailKind::short_message);
    long_plan_ = plan(RailKind::long_message);
    for (int turn = 0; meter != nullptr && turn < turns(nodes); ++turn)
        timed_plans_.push_back(plan(RailKind::long_message, turn));
    for (std::size_t tag = 0; tag < lane_count; ++tag)
        lanes_.push_back({std::make_unique<RailSum>(rail_, static_cast<int>(tag), meter), 0});
}

void RailPipeline::advance() {
    for (Lane& lane : lanes_) advance_lane(lane);
    while (const auto next = next_to_begin()) begin_chunk(*next);
    for (; !jobs_.empty() && jobs_.front().is_done(); ++finished_) jobs_.pop_front();
}

bool RailPipeline::has_news() const {
    return std::ranges::any_of(lanes_, [](const Lane& lane) { return lane.sum->has_news(); });
}

std::vector<int> RailPipeline::awaited_ranks() const {
    std::vector<int> ranks;
    for (const Lane& lane : lanes_)
        if (!lane.sum->is_idle()) ranks.push_back(lane.sum->awaited_rank());
    return ranks;
}

/// Chunks need lanes only where messages travel.
std::size_t RailPipeline::chunk_count(const RailJob& job) const {
    return long_plan_.steps.empty() ? job.count : chunk_bytes / sizeof(float);
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
        jobs_, [](const ActiveJob& active) { return active.begun < active.job.count; });
    if (next == jobs_.end()) return std::nullopt;
    return static_cast<std::size_t>(next - jobs_.begin());
}

void RailPipeline::begin_chunk(std::size_t position) {
    ActiveJob& active = jobs_[position];
    const RailJob& job = active.job;
    const std::size_t count = std::min(chunk_count(job), job.count - active.begun);
    RailTask task{&plan_for(job), job.inputs, job.out + active.begun, count, times_next_chunk()};
    ++chunks_;
    for (float*& input : task.inputs) input += active.begun;
    Lane& lane = lanes_[next_lane_];
    lane.job = finished_ + position;
    lane.sum->begin(std::move(task));
    active.begun += count;
    if (!lane.sum->is_idle()) ++active.chunks_under_way;
    next_lane_ = (next_lane_ + 1) % lane_count;
}

void RailPipeline::advance_lane(Lane& lane) {
    if (lane.sum->is_idle()) return;
    while (lane.sum->has_news()) lane.sum->advance();
    if (lane.sum->is_idle()) --jobs_[lane.job - finished_].chunks_under_way;
}

}  // namespace lockstep
