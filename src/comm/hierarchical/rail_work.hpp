// SPDX-License-Identifier: Apache-2.0
// What the owner of a stripe does with it when all ranks of its node have met.
#pragma once

#include "base/spin.hpp"
#include "collectives/shared_meeting.hpp"
#include "hierarchical/nodes.hpp"
#include "hierarchical/rail_pipeline.hpp"
#include "hierarchical/segment.hpp"

#include <deque>
#include <vector>

namespace lockstep {

/// begin() for one segment after another, on every node in the same order; then, in that order,
/// finish(): afterwards the own stripe of the own buffer is what all ranks shall have.
class RailWork {
  public:
    virtual ~RailWork() = default;
    virtual void begin(const Segment& segment) = 0;
    virtual void finish(const Segment& segment) = 0;
};

/// Waiting for other nodes.
struct RailWait {
    const Nodes& nodes;
    const SharedMeeting& meeting;  ///< knows what the call is
    double limit_s = no_deadline;

    /// Error E630 if none of `awaited` sends anything for limit_s.
    [[noreturn]] void give_up(std::vector<int> awaited) const;
};

/// The sum over all ranks. bfloat16 travels as float32, so that it is rounded once.
class SumOnRail : public RailWork {
  public:
    SumOnRail(RailPipeline& pipeline, const RailWait& wait) : pipeline_(pipeline), wait_(wait) {}
    void begin(const Segment& segment) override;
    void finish(const Segment& segment) override;

  private:
    void widen(const Segment& segment, ByteRange own);

    RailPipeline& pipeline_;
    const RailWait& wait_;
    std::deque<std::vector<float>> widened_;  ///< by segment under way
    std::size_t begun_ = 0, finished_ = 0;
};

/// Messages between the owners of one stripe that only move bytes.
class MovesOnRail : public RailWork {
  public:
    MovesOnRail(const Rail& rail, const RailWait& wait) : rail_(rail), wait_(wait) {}
    ~MovesOnRail() override;
    void finish(const Segment& segment) override;

  protected:
    const Nodes& nodes() const { return wait_.nodes; }
    int own_rail() const { return nodes().local().rank(); }
    ByteRange own_stripe(const Segment& segment) const {
        return segment.stripe(own_rail(), nodes().rails());
    }
    void send(const Segment& segment, ByteRange range, int node);
    void receive(const Segment& segment, ByteRange range, int node);
    void wait_for_all();

  private:
    enum class Direction { send, receive };
    void post(int node, Direction direction, std::byte* data, std::size_t bytes);
    std::vector<int> pending_peers();

    const Rail& rail_;
    const RailWait& wait_;
    std::vector<MPI_Request> requests_;
    std::vector<int> peers_;  ///< of the requests
};

/// Every rank's stripe of the message to every node.
class GatherOnRail : public MovesOnRail {
  public:
    using MovesOnRail::MovesOnRail;
    void begin(const Segment& segment) override;

  private:
    template <class Act>
    void for_each_part(const Segment& segment, int node, Act&& act) const;
};

/// The message of rank `root` to every node, by a binomial tree over nodes.
class BroadcastOnRail : public MovesOnRail {
  public:
    BroadcastOnRail(const Rail& rail, const RailWait& wait, int root)
        : MovesOnRail(rail, wait), root_(root) {}
    void begin(const Segment& segment) override;

  private:
    const int root_;
};

}  // namespace lockstep
