// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl/mpi_wire.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <vector>

namespace lockstep::test {
namespace {

/// One operation under way.
struct Moving {
    MPI_Request request = MPI_REQUEST_NULL;
    bool has_begun = false, is_done = false;
    std::vector<float> scattered;  ///< MPI sums into no part of what it reads
};

}  // namespace

MPI_Request MpiWire::begin(const FakeNccl::Op& op,
                           FakeNccl::Posted posted,
                           float* scattered) const {
    const int count = static_cast<int>(op.count);
    const MPI_Comm comm = ranks_.handle();
    const bool is_root = ranks_.rank() == op.root;
    const void* from = posted.from == posted.to ? MPI_IN_PLACE : posted.from;
    MPI_Request request = MPI_REQUEST_NULL;
    if (op.kind == "send")
        MPI_Isend(posted.from, count, MPI_FLOAT, op.root, 0, comm, &request);
    else if (op.kind == "recv")
        MPI_Irecv(posted.to, count, MPI_FLOAT, op.root, 0, comm, &request);
    else if (op.kind == "all_reduce")
        MPI_Iallreduce(from, posted.to, count, MPI_FLOAT, MPI_SUM, comm, &request);
    else if (op.kind == "reduce")
        MPI_Ireduce(is_root ? from : posted.from,
                    posted.to,
                    count,
                    MPI_FLOAT,
                    MPI_SUM,
                    op.root,
                    comm,
                    &request);
    else if (op.kind == "reduce_scatter")
        MPI_Ireduce_scatter_block(
            posted.from, scattered, count, MPI_FLOAT, MPI_SUM, comm, &request);
    else if (op.kind == "all_gather")
        MPI_Iallgather(MPI_IN_PLACE, 0, MPI_FLOAT, posted.to, count, MPI_FLOAT, comm, &request);
    else
        expect(false, "the wire has no " + op.kind);
    return request;
}

FakeCuda::Task MpiWire::task_of(const FakeNccl::Op& op, FakeNccl::Posted posted) {
    expect(op.type == nccl::type_float32, "plain floats");
    const bool scatters = op.kind == "reduce_scatter";
    if (op.kind == "all_gather")
        expect(posted.from == static_cast<float*>(posted.to) +
                                  static_cast<std::size_t>(ranks_.rank()) * op.count,
               "gathered in place");
    return [this, op, posted, scatters, moving = std::make_shared<Moving>()] {
        if (moving->is_done) return true;
        if (!moving->has_begun) {
            if (scatters) moving->scattered.resize(op.count);
            moving->request = begin(op, posted, moving->scattered.data());
            moving->has_begun = true;
        }
        int is_done = 0;
        MPI_Test(&moving->request, &is_done, MPI_STATUS_IGNORE);
        if (is_done == 0) return false;
        std::ranges::copy(moving->scattered, static_cast<float*>(posted.to));
        return moving->is_done = true;
    };
}

}  // namespace lockstep::test
