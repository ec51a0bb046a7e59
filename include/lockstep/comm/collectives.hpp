// SPDX-License-Identifier: Apache-2.0
/// @file
/// Collectives over buffers of any size and type: one interface, many algorithms side by side.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/data_type.hpp"

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>

namespace lockstep {

/// One algorithm that sums over the ranks of one group. One thread at a time; the same calls in the
/// same order on every rank.
class AllReduce {
  public:
    virtual ~AllReduce() = default;

    /// "shared-memory", "hierarchical", "ring", ... as `bench comm --algo` spells it.
    virtual std::string_view name() const = 0;

    /// Collective. `bytes` zeros at a 64-byte boundary, the same on every rank, valid for the
    /// lifetime of this. Buffers that begin inside need no copy where the algorithm has a window
    /// for them; elsewhere it is ordinary memory. Errors: E632 no room.
    virtual std::byte* lend(std::size_t bytes) = 0;

    /// Collective. data[i] = sum over ranks of data[i], the same bits on every rank. `data` is
    /// aligned to its element.
    virtual void all_reduce(void* data, std::size_t count, DataType type) = 0;
};

/// All collectives of one group. The sum is the balanced tree over ranks (see sum_order): it does
/// not depend on the back end, the size of the buffer, or where ranks run. In place; `stripe` means
/// stripe_of(count, type, rank, ranks).
class Collectives : public AllReduce {
  public:
    /// Collective. Afterwards this rank's stripe holds the sum; the rest is unspecified.
    virtual void reduce_scatter(void* data, std::size_t count, DataType type) = 0;

    /// Collective. Afterwards every rank has every rank's stripe.
    virtual void all_gather(void* data, std::size_t count, DataType type) = 0;

    /// Collective. Afterwards every rank has the `bytes` bytes of `root`.
    virtual void broadcast(void* data, std::size_t bytes, int root) = 0;

    /// Collective.
    virtual void barrier() = 0;

    /// How long any call may wait for other ranks before it throws Error E630, which names the
    /// ranks that did not come and the call. Not a limit on the work itself. Default: none.
    virtual void set_deadline(double seconds) = 0;
};

/// The algorithms that sum. Those that are Collectives sum in the order of the balanced tree.
enum class Algorithm {
    shared_memory,       ///< Collectives, ranks of one node
    hierarchical,        ///< Collectives, any ranks
    ring,                ///< for teaching and measuring, over MPI point-to-point
    recursive_doubling,  ///< likewise
    tree,                ///< likewise: binomial reduce, then broadcast
    parameter_server,    ///< likewise: synchronous, every rank also serves one stripe
    open_mpi,            ///< MPI_Allreduce
};

/// In the order of the enumeration.
std::span<const Algorithm> all_algorithms();

/// As `bench comm --algo` spells it.
std::string_view name_of(Algorithm algorithm);

/// Collective. Errors: E631 shared memory across nodes, E632 no room in /dev/shm.
std::unique_ptr<AllReduce> make_all_reduce(const Communicator& ranks, Algorithm algorithm);

/// Collective. Shared memory where all ranks are on one node and /dev/shm has room (if not, it says
/// so once), else hierarchical.
std::unique_ptr<Collectives> make_collectives(const Communicator& ranks);

}  // namespace lockstep
