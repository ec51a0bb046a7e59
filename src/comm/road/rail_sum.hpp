// SPDX-License-Identifier: Apache-2.0
// Messages between the ranks that own the same stripe on different nodes, and the sum of one chunk
// through a RailPlan, without waiting.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include "base/aligned_floats.hpp"
#include "road/link_timer.hpp"
#include "road/rail_plan.hpp"

#include <cstddef>
#include <optional>
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

/// The data of a sum: inputs of this node in the order of their numbers, and the place of the sum.
/// Inputs are overwritten; `out` may be one of them. To owners, only `slice` of each share is
/// summed: a chunk has a part of every share.
struct RailTask {
    const RailPlan* plan = nullptr;
    std::vector<float*> inputs;
    float* out = nullptr;
    std::size_t count = 0;
    bool is_timed = false;  ///< its long messages are timed; the same on all nodes
    Share slice = Share::all;
};

/// Sums one chunk at a time: begin(), then advance() whenever has_news(), until is_idle().
class RailSum {
  public:
    /// `rail` and `meter` must outlive this. Simultaneous chunks have different tags. `meter`: null
    /// if nothing is timed.
    RailSum(const Rail& rail, int tag, LinkMeter* meter) : rail_(rail), messages_(rail, tag) {
        if (meter != nullptr) timer_.emplace(*meter);
    }
    RailSum(const RailSum&) = delete;
    RailSum& operator=(const RailSum&) = delete;

    void begin(RailTask task);
    bool is_idle() const { return phase_ == Phase::idle; }

    /// Returns true if the messages of the current step have arrived. Never waits.
    bool has_news();
    void advance();

    /// Returns the rank on the rail whose message is waited for; -1: none.
    int awaited_rank() const { return messages_.awaited_rank(); }

  private:
    enum class Phase { idle, in, out };

    const RailStep& step() const { return task_.plan->steps[step_]; }
    std::span<const RailStep> steps_at_once() const;
    FloatRange sliced(FloatRange range, Share share) const;
    std::vector<FloatRange> own_ranges() const;

    void post_in();
    void take_in();
    void post_out();
    void next_out();
    bool has_note(std::size_t bytes) const;
    void begin_receiving(int node, std::size_t bytes);
    void begin_sending(int node, std::size_t bytes);
    void tell_timer();
    void send(int node, const float* from, FloatRange range);
    void receive(int node, float* to, FloatRange range);
    void add_up(std::span<const Combination> sums, std::span<const FloatRange> ranges);
    void make_room();

    const Rail& rail_;
    RailTask task_;
    Phase phase_ = Phase::idle;
    std::size_t step_ = 0;
    std::vector<float*> pieces_;      ///< float 0 of the chunk in each piece
    std::vector<FloatRange> ranges_;  ///< before each step, and after the last
    RailMessages messages_;           ///< receives first; for timed ones the note's
    std::size_t receives_ = 0;        ///< receives of the first step
    std::optional<LinkTimer> timer_;
    AlignedFloats room_;  ///< room for received data
    std::size_t room_floats_ = 0, room_used_ = 0;
};

}  // namespace lockstep
