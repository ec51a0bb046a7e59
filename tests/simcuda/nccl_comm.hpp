// SPDX-License-Identifier: Apache-2.0
// A communicator of the NCCL that is made up; its operations are messages between ranks and sums of
// what arrived.
#pragma once

#include "nccl/nccl_types.hpp"
#include "simcuda/machine.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include <mpi.h>

namespace simcuda {

enum class NcclKind { send, receive, all_gather, reduce, reduce_scatter, all_reduce };

struct NcclOperation {
    NcclKind kind = NcclKind::send;
    const void* from = nullptr;
    void* to = nullptr;
    std::size_t count = 0;  ///< elements, of one rank's part where each has one
    lockstep::nccl::DataTypeCode type = 0;
    int root = 0;  ///< or the peer
};

struct NcclIssued {
    NcclOperation operation;
    Stream* stream = nullptr;
};

/// What a communicator reports of itself, in NCCL's words and as NCCL_DEBUG has it: its ways, each
/// told when it is used first, as NCCL connects.
class NcclLog {
  public:
    /// Collective. NCCL's first words.
    void begin(MPI_Comm ranks);

    /// Between ranks of one host, as NCCL_HOSTID has it, by shared memory, else by sockets.
    void connect(const NcclOperation& operation);

  private:
    int rank_ = 0, size_ = 1;
    std::vector<std::uint64_t> hosts_;  ///< a hash of each rank's
    std::set<int> connected_;
};

/// Its ranks are those of MPI_COMM_WORLD. Like one of NCCL's that does not block: a thread in the
/// background takes what is issued and puts it on its stream, which the state shows. Lives to the
/// end of the process, as there may always be a stream that looks at it.
class NcclComm {
  public:
    explicit NcclComm(int tag);

    /// ncclInProgress while something is not taken yet.
    lockstep::nccl::Result state() const;
    void take(std::vector<NcclIssued> group);

    /// Groups end, whatever they wait for.
    void end();
    bool is_over() const { return is_over_; }

    /// In progress until all is done.
    void finalize();

  private:
    void in_background(Stream::Task task);
    void run(const std::vector<NcclIssued>& group, std::uint64_t number);
    void hold() const;

    Stream& background_;
    MPI_Comm ranks_ = MPI_COMM_NULL;
    NcclLog log_;  ///< the background's
    std::atomic<int> not_taken_ = 0;
    std::atomic<bool> is_over_ = false;
    std::uint64_t groups_ = 0;
    Stream* used_ = nullptr;  ///< the stream of the last group
};

/// Bytes that this rank had to send, since the program began.
std::uint64_t nccl_sent_bytes();

}  // namespace simcuda
