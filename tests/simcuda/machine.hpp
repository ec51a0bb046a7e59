// SPDX-License-Identifier: Apache-2.0
// CUDA without a GPU: memory of the GPUs is the host's at other addresses, a stream is a thread, a
// kernel is its host source. Nothing of the program knows: one library stands for all that it loads
// by name.
//
//     the program                               libsimcuda.so
//     LibTorch      dispatch key CUDA ------->  torch_operators: LibTorch's own operator, on a copy
//                   hooks, guard, allocator ->  torch_device
//     lockstep      CudaApi, entry points --->  cuda_table, entry_points --+
//                   ncclXxx ----------------->  nccl_*, over MPI ----------+--> streams: threads
//
// LibTorch's operators run on the thread that calls them, after all work of its current stream: a
// host that waits where a GPU would queue. Their results, and all else, are work of streams that
// touches memory when its turn comes, so that a missing event is seen as wrong numbers.
//
// What it cannot show: kernels, speed, and a host that runs ahead of LibTorch's operators.
#pragma once

#include "simcuda/memory.hpp"
#include "simcuda/stream.hpp"

#include <cstddef>
#include <vector>

namespace simcuda {

/// The one of this process. Lives to its end.
class Machine {
  public:
    Memory memory;

    /// CUDA's current device, of the calling thread.
    static int device();
    static void set_device(int device);

    bool has_context(int device);
    void make_context(int device);

    /// The legacy default stream of a device, nullptr to CUDA.
    Stream& default_stream(int device);
    /// A new one; it is drained with its device until it is given back.
    Stream& make_stream(int device);
    void end_stream(Stream& stream);

    /// Until all streams of the device have done what they had.
    void synchronize(int device);

    /// Like memory.allocate(), after all frees that are still in streams where need be.
    void* allocate(int device, std::size_t bytes);

  private:
    std::mutex mutex_;
    std::vector<bool> contexts_;
    std::vector<Stream*> defaults_;
    std::vector<Stream*> streams_;
};

Machine& machine();

/// Of a cudaStream_t; nullptr: the default stream of the calling thread's device.
Stream& stream_of(void* handle);

}  // namespace simcuda
