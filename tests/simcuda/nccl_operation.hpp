// SPDX-License-Identifier: Apache-2.0
// One call of NCCL as messages between ranks and a sum of what arrived.
#pragma once

#include "nccl/nccl_types.hpp"

#include <cstddef>
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

    std::size_t bytes() const;
    /// That a rank has to send to others, by the way that sends the least.
    std::size_t traffic(int rank, int size) const;
};

/// A rank's messages of one operation, under way. All of a group are begun before any is waited
/// for; those between two ranks match in the order in which they were begun.
class NcclTransfer {
  public:
    NcclTransfer(const NcclOperation& operation, MPI_Comm ranks);

    bool is_done();
    /// Writes the result, when all is done.
    void finish();
    /// Leaves what is under way: the communicator is aborted.
    void leave();

  private:
    void begin();
    void send_to(int rank, const void* data);
    void receive_from(int rank, void* data);
    void send_to_others(std::size_t bytes_apart);
    void receive_from_others(std::byte* into);
    bool adds_up() const;
    const void* own_part() const;

    NcclOperation operation_;
    MPI_Comm ranks_;
    int rank_ = 0, size_ = 1;
    std::vector<MPI_Request> requests_;
    std::vector<std::byte> received_;  ///< a part from each rank that adds up
};

}  // namespace simcuda
