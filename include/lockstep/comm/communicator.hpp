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

/// Returns true if a launcher (mpirun, srun --mpi=pmix) started this process as a rank.
bool launched_by_mpi();

/// Calls MPI_Init_thread (MULTIPLE requested, SERIALIZED accepted) and MPI_Finalize. One per
/// process; made in main, outlives every Communicator. Errors: E604 if the thread level is too low.
class MpiSession {
  public:
    MpiSession();
    ~MpiSession();
    MpiSession& operator=(MpiSession&&) = delete;

    /// Returns "Open MPI v4.1.4 ...".
    static std::string library_version();
};

/// A group of ranks. The null communicator (default) acts as one rank: collectives are identities
/// and need no MPI. Copies share one MPI_Comm, freed by the last of them.
/// MPI errors become Error E620 with MPI's own text.
class Communicator {
  public:
    Communicator() = default;

    /// Collective. Returns a duplicate of MPI_COMM_WORLD, or the null communicator outside MPI.
    static Communicator world();

    int rank() const { return rank_; }           ///< rank of this process, from 0
    int size() const { return size_; }           ///< number of ranks, at least 1
    bool is_root() const { return rank_ == 0; }  ///< true on rank 0, which reports for all
    MPI_Comm handle() const;                     ///< MPI_COMM_NULL for the null communicator

    /// Collective. Returns a communicator with its own message space; use one for each purpose
    /// (control, gradients, metrics).
    Communicator duplicate() const;

    /// Collective. Returns the ranks that share memory with this one, ordered by rank.
    Communicator split_by_node() const;

    /// Collective. Returns the ranks that gave the same `color` (>= 0), ordered by rank.
    Communicator split(int color) const;

    /// Collective. Waits for all ranks.
    void barrier() const;

    /// Collective. Does the same for a wait of seconds and more: the core is free meanwhile.
    void barrier_asleep() const;

    /// Collective. Returns the `bytes` of rank `root` on every rank, whatever their size.
    std::string broadcast(std::string bytes, int root = 0) const;

    /// Collective. Returns the bytes of all ranks, by rank.
    std::vector<std::string> all_gather(const std::string& bytes) const;

    /// Collective. Returns the bytes of all ranks, by rank, on rank 0; nothing on the others.
    std::vector<std::string> gather(const std::string& bytes) const;

    /// Collective. Computes element-wise sums, in place. Integers: exact in any order.
    void all_reduce_sum(std::span<std::int64_t> values) const;

    /// Collective. Computes the element-wise maximum, in place.
    void all_reduce_max(std::span<std::int64_t> values) const;

    /// Collective. Computes element-wise sums of doubles, in place. They are independent of the
    /// number of ranks only if each element is non-zero on at most one rank.
    void all_reduce_sum(std::span<double> values) const;

    /// Records the calls of this and its copies, during set-up and in phases that may_be_long():
    /// only this shows which rank it waits for. All ranks call it at the same place. `recorder`
    /// must outlive its use; nullptr ends it.
    void record_in(FlightRecorder* recorder) const;

    /// Ends all ranks with `exit_code`; never returns. Call after the log is written.
    [[noreturn]] void abort(int exit_code) const;

  private:
    explicit Communicator(MPI_Comm owned);

    struct Handle;
    std::shared_ptr<Handle> handle_;
    int rank_ = 0, size_ = 1;
};

}  // namespace lockstep
