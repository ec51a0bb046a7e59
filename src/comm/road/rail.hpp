// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks that own the same stripe on different nodes, and sums over nodes in
// chunks, several at a time: one travels while another is added.
#pragma once

#include "lockstep/comm/exchange.hpp"

#include "road/link_timer.hpp"
#include "road/rail_plan.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <mpi.h>

namespace lockstep {

/// The ranks that own the same stripe, by node, and their communicator.
struct Rail {
    Communicator ranks;
    std::vector<int> rank_on_node;
};

/// Those that one rank posts and has not seen through. Never waits. Nodes post the messages
/// between them in the same order.
class RailMessages {
  public:
    /// `rail` must outlive this. `tag`: of no other messages on the rail.
    RailMessages(const Rail& rail, int tag) : rail_(rail), tag_(tag) {}

    /// Forgets them; all are through.
    void clear();

    /// Floats at `from` and `to` stay there until the message is through. None: an empty message.
    void send(int node, const float* from, std::size_t count);
    void receive(int node, float* to, std::size_t count);

    /// Returns the number of those posted since clear().
    std::size_t count() const { return requests_.size(); }

    /// Returns true if the first `count` of them are through, or all.
    bool are_through(std::size_t count);
    bool are_through() { return are_through(count()); }

    /// Returns the rank on the rail whose message is waited for; -1: none.
    int awaited_rank() const { return passed_ < ranks_.size() ? ranks_[passed_] : -1; }

  private:
    template <class Post>
    void post(int node, std::size_t count, Post&& post_part);

    const Rail& rail_;
    const int tag_;
    std::vector<MPI_Request> requests_;
    std::vector<int> ranks_;  ///< by request
    std::size_t passed_ = 0;  ///< requests that are through, from the first on
};

/// A sum on one rail; see RailTask.
struct RailJob {
    std::vector<float*> inputs;
    float* out = nullptr;
    std::size_t count = 0;
};

struct RailTask;

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
    ~RailPipeline();
    RailPipeline& operator=(RailPipeline&&) = delete;

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
    struct Lane;

    RailTask task_of(const ActiveJob& active) const;
    const RailPlan& plan_for(const RailJob& job) const;
    bool times_next_chunk() const;
    bool begin_chunk();
    void advance_lane(Lane& lane);

    const Rail& rail_;
    std::size_t chunk_floats_;
    RailPlan short_plan_, long_plan_;
    std::vector<RailPlan> timed_plans_;  ///< replace `long_plan_`; empty: nothing is timed
    std::size_t chunks_ = 0;             ///< begun
    std::vector<std::unique_ptr<Lane>> lanes_;
    std::size_t next_lane_ = 0;
    std::deque<ActiveJob> jobs_;  ///< unfinished jobs
    std::size_t finished_ = 0;
};

}  // namespace lockstep
