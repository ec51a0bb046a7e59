// SPDX-License-Identifier: Apache-2.0
/// @file
/// MPI as values: a session that owns init and finalize, and communicators that free themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <mpi.h>

namespace lockstep {

class FlightRecorder;

/// Whether a launcher (mpirun, srun --mpi=pmix) started this process as one of several ranks.
bool launched_by_mpi();

/// MPI_Init_thread (MULTIPLE asked, SERIALIZED accepted) and MPI_Finalize. One per process; made
/// in main, outlives every Communicator. Errors: E604 if the thread level is too low.
class MpiSession {
  public:
    MpiSession();
    ~MpiSession();
    MpiSession(const MpiSession&) = delete;
    MpiSession& operator=(const MpiSession&) = delete;

    /// "Open MPI v4.1.4 ..."
    static std::string library_version();
};

/// A group of ranks. The null communicator (default) acts as one rank: collectives are identities
/// and need no MPI. Copies share one MPI_Comm, freed by the last of them.
/// MPI errors become Error E620 with MPI's own text.
class Communicator {
  public:
    Communicator() = default;

    /// Collective. A duplicate of MPI_COMM_WORLD, or the null communicator outside an MPI session.
    static Communicator world();

    int rank() const { return rank_; }           ///< of this process, from 0
    int size() const { return size_; }           ///< how many ranks there are, at least 1
    bool is_root() const { return rank_ == 0; }  ///< rank 0: the one that speaks for all
    MPI_Comm handle() const;                     ///< MPI_COMM_NULL for the null communicator

    /// Collective. Its own message space; one for each purpose (control, gradients, metrics).
    Communicator duplicate() const;

    /// Collective. The ranks that share memory with this one, ordered by rank.
    Communicator split_by_node() const;

    /// Collective. The ranks that gave the same `color` (>= 0), ordered by rank.
    Communicator split(int color) const;

    /// Collective.
    void barrier() const;

    /// Collective. `bytes` of rank `root` on every rank, whatever its size.
    std::string broadcast(std::string bytes, int root = 0) const;

    /// Collective. Everyone's bytes, by rank.
    std::vector<std::string> all_gather(const std::string& bytes) const;

    /// Collective. Everyone's bytes, by rank, on rank 0; nothing on the others.
    std::vector<std::string> gather(const std::string& bytes) const;

    /// Collective. Element-wise, in place. Integers: exact in any order.
    void all_reduce_sum(std::span<std::int64_t> values) const;

    /// Collective. Element-wise maximum, in place.
    void all_reduce_max(std::span<std::int64_t> values) const;

    /// Collective. Element-wise sum of doubles, in place. Invariant to the number of ranks only
    /// where at most one rank has a non-zero value in each element.
    void all_reduce_sum(std::span<double> values) const;

    /// Notes the calls of this and its copies, during set-up and in phases that may_be_long():
    /// only this shows which rank it waits for. All ranks at the same place. `recorder`
    /// outlives its use; nullptr ends it.
    void record_in(FlightRecorder* recorder) const;

    /// Ends all ranks with `exit_code`; never returns. Call after the log is written.
    [[noreturn]] void abort(int exit_code) const;

  private:
    explicit Communicator(MPI_Comm owned);

    struct Handle;
    std::shared_ptr<Handle> handle_;
    int rank_ = 0;
    int size_ = 1;
};

}  // namespace lockstep
