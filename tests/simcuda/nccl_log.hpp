// SPDX-License-Identifier: Apache-2.0
// What the NCCL that is made up reports of itself, in NCCL's words and as NCCL_DEBUG has it.
#pragma once

#include "simcuda/nccl_operation.hpp"

#include <set>

namespace simcuda {

/// The ways of one communicator, each told when it is used first, as NCCL connects.
class NcclLog {
  public:
    /// Collective. NCCL's first words.
    void begin(MPI_Comm ranks);

    /// Between ranks of one host, as NCCL_HOSTID has it, by shared memory, else by sockets.
    void connect(const NcclOperation& operation);

  private:
    void send_to(int peer);
    bool is_on_this_host(int peer) const;

    MPI_Comm ranks_ = MPI_COMM_NULL, host_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    std::set<int> connected_;
};

}  // namespace simcuda
