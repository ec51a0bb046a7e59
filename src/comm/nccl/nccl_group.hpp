// SPDX-License-Identifier: Apache-2.0
// One launch of NCCL: calls that go to the communicator's stream together; and GPU memory for them
// that is registered with NCCL, if possible.
//
// And the GPU's progress in the groups of sends on a communicator's stream (GroupWatch).
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

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/core/pages.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include "nccl/nccl_inside.hpp"
#include "nccl/stripe_moves.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

/// Calls between construction and end() are one launch. An exception also closes the group: an open
/// one would absorb every later call of this thread. All memory is the GPU's.
class NcclGroup {
  public:
    explicit NcclGroup(NcclCommunicator::Inside& inside);
    ~NcclGroup();
    NcclGroup& operator=(NcclGroup&&) = delete;

    /// Sends to `peer`, or receives from it. All messages of a group move at once; those between
    /// two ranks match in the order of the calls.
    void send(int peer, std::span<const float> floats);
    void receive(int peer, std::span<float> floats);

    /// Replaces each number by its sum over all ranks, in place.
    void add_up(std::span<std::int64_t> numbers);

    /// Replaces this rank's stripe of a bucket of `vector` by its sum, in place and in NCCL's own
    /// order. The other stripes are unspecified afterwards.
    void scatter_sum(float* vector, const FlatLayout& layout, std::size_t bucket);

    /// Fills a bucket of `vector` with every rank's stripe, in place. Returns false, and does
    /// nothing, unless all stripes are equal.
    bool gather_equal_stripes(float* vector, const FlatLayout& layout, std::size_t bucket);

    /// Closes the group. NCCL accepts the calls in the background: until then, nothing may follow
    /// on the stream.
    void close();

    /// Closes the group, and waits until NCCL has accepted the calls.
    void end(const std::string& what);

  private:
    // Of a function of NCCL whose last arguments are the communicator and its stream.
    template <class Function, class... Arguments>
    void add(const char* name, const Function& function, Arguments... arguments) {
        inside_.handle().call(
            name, [&](nccl::Comm& comm) { return function(arguments..., comm, inside_.stream()); });
    }

    NcclCommunicator::Inside& inside_;
    bool is_open_ = true;
};

/// Owns memory from ncclMemAlloc, registered with the communicator, if every rank's NCCL supports
/// that (a mixture is undefined); else from cudaMalloc. It must be destroyed, with its copies,
/// before its communicator is closed.
class NcclBuffer {
  public:
    /// Collective. Allocates `bytes` on every rank. Errors: E630, E681.
    NcclBuffer(NcclCommunicator& communicator, std::size_t bytes);

    void* data() const { return memory_.get(); }  ///< in GPU memory

    /// Returns true if it is registered with the communicator: then NCCL need not copy.
    bool is_registered() const { return is_registered_; }

  private:
    std::shared_ptr<void> memory_;
    bool is_registered_ = false;
};

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
    GroupWatch& operator=(GroupWatch&&) = delete;

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
