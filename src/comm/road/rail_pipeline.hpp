// SPDX-License-Identifier: Apache-2.0
// Sums over nodes in chunks, several at a time: one travels while another is added.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include "road/rail_sum.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// A sum on one rail; see RailTask.
struct RailJob {
    std::vector<float*> inputs;
    float* out = nullptr;
    std::size_t count = 0;
};

/// Processes the same jobs in the same order on every node of the rail.
class RailPipeline {
  public:
    static constexpr std::size_t lane_count = 4;  ///< their numbers are their messages' tags

    /// `node_of_input` as in make_rail_plan(); the rail's nodes are all nodes. `shards`: all nodes
    /// get the whole sum, or each its share. `meter` must outlive this; with one, on all nodes, a
    /// few messages are timed.
    RailPipeline(const Rail& rail,
                 const SumTree& tree,
                 std::span<const int> node_of_input,
                 int node,
                 ShardState shards,
                 LinkMeter* meter = nullptr);

    void submit(RailJob job);

    /// Does all work that needs no waiting.
    void advance();
    bool has_news() const;

    /// Returns the number of finished jobs since the begin; they end in order.
    std::size_t finished() const { return finished_; }

    /// Returns a rank of the rail whose message is awaited; -1: none.
    int awaited_rank() const;

  private:
    struct ActiveJob {
        RailJob job;
        int chunks = 0, begun = 0, under_way = 0;
        bool is_done() const { return begun == chunks && under_way == 0; }
    };
    struct Lane {
        std::unique_ptr<RailSum> sum;
        std::size_t job = 0;  ///< number since the begin
    };

    RailTask task_of(const ActiveJob& active) const;
    const RailPlan& plan_for(const RailJob& job) const;
    bool times_next_chunk() const;
    std::optional<std::size_t> next_to_begin() const;
    void begin_chunk(std::size_t position);
    void advance_lane(Lane& lane);

    const Rail& rail_;
    std::size_t chunk_floats_;
    RailPlan short_plan_, long_plan_;
    std::vector<RailPlan> timed_plans_;  ///< replace `long_plan_`; empty: nothing is timed
    std::size_t chunks_ = 0;             ///< begun
    std::vector<Lane> lanes_;
    std::size_t next_lane_ = 0;
    std::deque<ActiveJob> jobs_;  ///< unfinished jobs
    std::size_t finished_ = 0;
};

}  // namespace lockstep
