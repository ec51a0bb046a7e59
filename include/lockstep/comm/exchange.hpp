// SPDX-License-Identifier: Apache-2.0
/// @file
/// How ranks sum gradients and see each other's updates: each owns a stripe of every bucket.
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

/// Whether a call may wait for other ranks.
enum class Wait { no, yes };

/// One step is: slots are filled -> arrive(b) for b = 0, 1, ... -> reduce(b) for b = 0, 1, ... ->
/// the owner writes its stripes of values() -> publish(). One thread; buckets in index order on
/// every rank.
class Exchange {
  public:
    virtual ~Exchange() = default;

    /// In which slots, values and sums lie; the host's unless said. Valid for its lifetime.
    virtual FlatMemory& memory();

    /// This rank's gradient slot: layout.size() floats, 64-byte aligned, valid for its lifetime.
    virtual float* slot(int index) = 0;

    /// Parameters and state as all ranks see them: layout.size() floats, 64-byte aligned. There is
    /// one copy for the ranks that share memory, equal on all nodes.
    /// A rank writes only its own stripes, and only between its last reduce() and publish().
    virtual float* values() = 0;

    /// The lines of `bucket` that this rank sums and writes; may be empty. The stripes of the ranks
    /// that share values() are the whole bucket, each line once.
    virtual FloatRange own_stripe(std::size_t bucket) const = 0;

    /// Whether this rank's stripes are the ones to save: those of all such ranks are one copy.
    virtual bool is_first_copy() const { return true; }

    /// This rank's partials of `bucket` are complete in its slots. Never waits.
    virtual void arrive(std::size_t bucket) = 0;

    /// The sum over all V leaves of this rank's stripe of `bucket`: stripe.size() floats that stay
    /// valid until publish(). With Wait::no: nullptr while some rank has not arrived. In order.
    virtual const float* reduce(std::size_t bucket, Wait wait) = 0;

    /// Collective. Afterwards values() holds every owner's stripes, and slots may be written again.
    virtual void publish() = 0;

    /// "one rank", "shared memory", "mpi", "hierarchical", "nccl"
    virtual std::string_view name() const = 0;

    /// Ranks that this one waits for at this moment. Any thread.
    virtual std::vector<int> awaited_ranks() const { return {}; }

    /// Of an exchange between GPUs: `listener` gets the state of this rank's GPU while a call waits
    /// long, on the thread that waits.
    virtual void on_long_wait(StandListener listener) { static_cast<void>(listener); }

    /// Seconds this rank waited for others since the last call.
    virtual double take_wait_s() = 0;

    /// Long messages from ranks of other nodes, of which a few are timed, since the last call.
    virtual std::vector<LinkTimes> take_links() { return {}; }
};

/// What carries gradients between ranks. The sums have the same bits on all of them.
enum class Transport {
    automatic,      ///< hierarchical, or mpi (it says so) where /dev/shm of a node has no room
    shared_memory,  ///< ranks of one node only
    hierarchical,   ///< shared memory inside nodes, messages between them
    mpi,            ///< messages between all ranks
};

/// Collective. One rank: no transport at all. Errors: E631 shared memory asked for across nodes,
/// E632 no room in /dev/shm if shared memory is required, E662 ranks with another layout or plan.
std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport = Transport::automatic);

}  // namespace lockstep
