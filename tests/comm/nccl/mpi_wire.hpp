// SPDX-License-Identifier: Apache-2.0
// Under the NCCL that is made up: moves the host's memory between processes, by MPI.
#pragma once

#include "lockstep/comm/communicator.hpp"

#include "comm/nccl/fake_nccl.hpp"

namespace lockstep::test {

/// For one NCCL communicator of all `ranks`, used by one thread. Floats only.
class MpiWire : public FakeNccl::Wire {
  public:
    /// Collective.
    explicit MpiWire(const Communicator& ranks) : ranks_(ranks.duplicate()) {}

    FakeCuda::Task task_of(const FakeNccl::Op& op, FakeNccl::Posted posted) override;

  private:
    MPI_Request begin(const FakeNccl::Op& op, FakeNccl::Posted posted, float* scattered) const;

    const Communicator ranks_;
};

}  // namespace lockstep::test
