// SPDX-License-Identifier: Apache-2.0
// The algorithms behind make_all_reduce(): one row in make.cpp and one function here for each.
#pragma once

#include "lockstep/comm/collectives.hpp"

#include <memory>

namespace lockstep {

/// What lend() does when /dev/shm has no room: Error E632, or private memory and a warning.
enum class NoRoom { is_an_error, lends_private_memory };

/// Collective. Ranks of one node, through a window that all of them see. Errors: E631, E632.
std::unique_ptr<Collectives> make_shared_memory_collectives(const Communicator& ranks,
                                                            NoRoom no_room = NoRoom::is_an_error);

/// Collective. Ranks anywhere: shared memory inside nodes, messages between them; messages only,
/// and a warning, where /dev/shm of a node has no room.
std::unique_ptr<Collectives> make_hierarchical_collectives(const Communicator& ranks);

/// Nothing to do; named `algorithm`, whose place it takes.
std::unique_ptr<Collectives> make_single_rank_collectives(Algorithm algorithm);

/// Collective. MPI's own MPI_Allreduce: what every other algorithm is measured against. Its order
/// of summation, and for bfloat16 its rounding, are the library's choice.
std::unique_ptr<AllReduce> make_open_mpi_all_reduce(const Communicator& ranks);

/// Collective, all of them. As textbooks teach them, over messages. In their cost formulas: n
/// bytes, P ranks, a = seconds a message, b = seconds a byte sent, g = seconds a byte summed.
std::unique_ptr<AllReduce> make_ring_all_reduce(const Communicator& ranks);
std::unique_ptr<AllReduce> make_recursive_doubling_all_reduce(const Communicator& ranks);
std::unique_ptr<AllReduce> make_tree_all_reduce(const Communicator& ranks);
std::unique_ptr<AllReduce> make_parameter_server_all_reduce(const Communicator& ranks);

}  // namespace lockstep
