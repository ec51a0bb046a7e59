// SPDX-License-Identifier: Apache-2.0
// The GPU's progress in the groups of sends on a communicator's stream.
//
// From outside, a group that hangs looks the same on all ranks: it does not end. The arrived bytes
// show which rank is late. So the last float of each rank's data is marked before the group, and
// during long waits a separate stream copies these floats to the host:
//
//     stream   | waits for slots | marks ... | begun |  group  | end |
//     beside                                     copies what was marked, again and again
//
// What must never happen:
// - A mark outlives the group: it lies where bytes of another rank's come, never on own ones.
// - Looking waits: what a look has asked for is there at the next one, or the GPU is silent.
// - The host's memory is freed under a copy.
//
// Tested: comm/nccl/stripe_moves_test.cpp (what is marked), e2e/device_test.cpp (who is named).
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include "nccl/nccl_inside.hpp"
#include "nccl/stripe_moves.hpp"

#include <deque>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

/// The place at which the last float of a rank's data arrives.
struct AwaitedPart {
    int peer = 0;
    float* last = nullptr;
};

/// Returns the last part of each rank; `received`: the begin of the places of `moves`.
std::vector<AwaitedPart> awaited_parts(const StripeMoves& moves, float* received);

/// Returns the same for a publication in one of the teams: for each rank the last bucket in which
/// it owns something.
std::vector<AwaitedPart> awaited_values(const FlatLayout& layout,
                                        const StripeTeam& team,
                                        float* values);

class GroupWatch {
  public:
    /// Checks the floats whenever the communicator waits long. Errors: E681.
    explicit GroupWatch(NcclCommunicator::Inside& inside);
    ~GroupWatch();
    GroupWatch(const GroupWatch&) = delete;
    GroupWatch& operator=(const GroupWatch&) = delete;

    void listen(StandListener listener) { listener_ = std::move(listener); }

    /// Call before the group of `stand` is issued. `parts`: at most one for each rank.
    void begin(const GpuStand& stand, std::vector<AwaitedPart> parts);

    /// Call when NCCL has accepted the group.
    void end();

  private:
    struct Group {
        GpuStand stand;  ///< the known part of the state
        std::vector<AwaitedPart> parts;
        CudaEvent begun, end;
        bool is_taken = false;
    };
    struct Room;

    void forget_passed();
    void mark(std::vector<AwaitedPart>& parts);
    void look();
    void look_inside(const std::shared_ptr<Group>& group);
    void copy(const Group& group);
    bool is_room_free() const;

    NcclCommunicator::Inside& inside_;
    const CudaStream beside_;
    const CudaEvent copied_;
    std::unique_ptr<Room> room_;  ///< for copies; null if pages cannot be locked
    StandListener listener_;
    std::deque<std::shared_ptr<Group>> groups_;  ///< groups that the GPU may not have finished
    std::shared_ptr<Group> copying_;             ///< the group whose parts were copied last
    int unanswered_ = 0;                         ///< checks since then
};

}  // namespace lockstep
