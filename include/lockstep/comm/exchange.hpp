// SPDX-License-Identifier: Apache-2.0
// How ranks sum gradients and see each other's updates: every rank owns one stripe of each bucket.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

namespace lockstep {

enum class Wait { no, yes };

/// One step is: slots are filled -> arrive(b) for b = 0, 1, ... -> reduce(b) for b = 0, 1, ... ->
/// the owner writes its stripes of values() -> publish(). One thread; buckets in index order on
/// every rank.
class Exchange {
  public:
    virtual ~Exchange() = default;

    /// This rank's gradient slot: layout.size() floats, 64-byte aligned, valid for its lifetime.
    virtual float* slot(int index) = 0;

    /// Parameters and state as all ranks see them: layout.size() floats, 64-byte aligned.
    /// A rank writes only its own stripes, and only between its last reduce() and publish().
    virtual float* values() = 0;

    /// This rank's partials of `bucket` are complete in its slots. Never waits.
    virtual void arrive(std::size_t bucket) = 0;

    /// The sum over all V leaves of this rank's stripe of `bucket`: stripe.size() floats that stay
    /// valid until publish(). With Wait::no: nullptr while some rank has not arrived. In order.
    virtual const float* reduce(std::size_t bucket, Wait wait) = 0;

    /// Collective. Afterwards values() holds every owner's stripes, and slots may be written again.
    virtual void publish() = 0;

    /// "shared memory", "mpi", "one rank"
    virtual std::string_view name() const = 0;

    /// The ranks that this one waits for at this moment, as far as the transport can tell: not at
    /// all over MPI. Any thread.
    virtual std::vector<int> awaited_ranks() const { return {}; }

    /// Seconds this rank waited for others since the last call.
    virtual double take_wait_s() = 0;
};

enum class Transport { automatic, shared_memory, mpi };

/// Collective. One rank: no transport at all. Else shared memory where all ranks are on one node,
/// plain MPI where not. Errors: E631 shared memory asked for across nodes, E632 no room in
/// /dev/shm.
std::unique_ptr<Exchange> make_exchange(const Communicator& ranks,
                                        const FlatLayout& layout,
                                        const TreePlan& plan,
                                        Transport transport = Transport::automatic);

}  // namespace lockstep
