// SPDX-License-Identifier: Apache-2.0
/// @file
/// The exchange in which ranks sum gradients and share updates: each rank owns a stripe of every
/// bucket.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/core/link_times.hpp"
#include "lockstep/run/flight_recorder.hpp"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

/// Permission of a call to wait for other ranks.
enum class Wait { no, yes };

/// Sums gradients and shares updates. One step is: slots are filled -> arrive(b) for b = 0, 1, ...
/// -> reduce(b) for b = 0, 1, ... -> the owner writes its stripes of values() -> publish(). One
/// thread; buckets in index order on every rank.
class Exchange {
  public:
    virtual ~Exchange() = default;

    /// Returns the memory of slots, values and sums; the host's by default. Valid for its lifetime.
    virtual FlatMemory& memory();

    /// Returns this rank's gradient slot: layout.size() floats, 64-byte aligned, valid for its
    /// lifetime.
    virtual float* slot(int index) = 0;

    /// Returns parameters and state as all ranks see them: layout.size() floats, 64-byte aligned.
    /// There is one copy for the ranks that share memory, equal on all nodes. A rank writes only
    /// its own stripes, and only between its last reduce() and publish().
    virtual float* values() = 0;

    /// Returns the lines of `bucket` that this rank sums and writes; may be empty. The stripes of
    /// the ranks that share values(), or of all ranks, together are the whole bucket, each line
    /// once.
    virtual FloatRange own_stripe(std::size_t bucket) const = 0;

    /// Returns true if this rank saves its stripes: those of all such ranks form one copy.
    virtual bool is_first_copy() const { return true; }

    /// Announces that this rank's partials of `bucket` are complete in its slots. Never waits.
    virtual void arrive(std::size_t bucket) = 0;

    /// Returns the sum over all V leaves of this rank's stripe of `bucket`: stripe.size() floats,
    /// valid until publish(). With Wait::no it returns nullptr until all ranks have arrived. Call
    /// it in bucket order.
    virtual const float* reduce(std::size_t bucket, Wait wait) = 0;

    /// Returns the number of ranks that share this rank's values().
    virtual int sharers() const { return 1; }

    /// Collective. Shares the stripes. Afterwards values() holds every owner's stripes, and slots
    /// may be written again.
    virtual void publish() = 0;

    /// Returns "one rank", "shared memory", "mpi", "hierarchical" or "nccl".
    virtual std::string_view name() const = 0;

    /// Returns the ranks that this one waits for at this moment. Any thread.
    virtual std::vector<int> awaited_ranks() const { return {}; }

    /// For an exchange between GPUs: `listener` gets the state of this rank's GPU during long
    /// waits, on the thread that waits.
    virtual void on_long_wait(StandListener listener) { static_cast<void>(listener); }

    /// Returns the seconds that this rank waited for others since the last call.
    virtual double take_wait_s() = 0;

    /// Returns the long messages from ranks of other nodes since the last call; only a few are
    /// timed.
    virtual std::vector<LinkTimes> take_links() { return {}; }
};

/// The way by which gradients travel between ranks. The sums have the same bits on all of them.
enum class Transport {
    automatic,      ///< hierarchical, or mpi (with a notice) if a node's /dev/shm is full
    shared_memory,  ///< ranks of one node only
    hierarchical,   ///< shared memory inside nodes, messages between them
    mpi,            ///< messages between all ranks
};

/// The ranks among which the stripes of all buckets are divided, and with them the optimizer's
/// state. The sums have the same bits.
enum class ShardState {
    node,  ///< each node's: every node has all of them
    all,   ///< the job's: a node has its part; the same on one node
};

/// Collective. Makes the exchange; a single rank needs no transport. Errors: E631 shared memory
/// requested across nodes, E632 no room in /dev/shm if shared memory is required, E662 ranks with
/// another layout or plan.
std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport = Transport::automatic,
                                        ShardState shards = ShardState::node);

}  // namespace lockstep
