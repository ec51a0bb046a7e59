// SPDX-License-Identifier: Apache-2.0
// One launch of NCCL: calls that go to the communicator's stream together; and GPU memory for them
// that is registered with NCCL, if possible.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include "nccl/nccl_inside.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace lockstep {

/// Calls between construction and end() are one launch. An exception also closes the group: an open
/// one would absorb every later call of this thread. All memory is the GPU's.
class NcclGroup {
  public:
    explicit NcclGroup(NcclCommunicator::Inside& inside);
    ~NcclGroup();
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    /// Sends to `peer`, or receives from it. All messages of a group move at once; those between
    /// two ranks match in the order of the calls.
    void send(int peer, std::span<const float> floats);
    void receive(int peer, std::span<float> floats);

    /// Replaces each number by its sum over all ranks, in place.
    void add_up(std::span<std::int64_t> numbers);

    /// Replaces this rank's stripe of a bucket of `vector` by its sum, in place and in NCCL's own
    /// order. The other stripes are unspecified afterwards.
    void scatter_sum(float* vector, const FlatLayout& layout, std::size_t bucket);

    /// Fills a bucket of `vector` with every rank's stripe, in place.
    void gather_stripes(float* vector, const FlatLayout& layout, std::size_t bucket);

    /// Closes the group. NCCL accepts the calls in the background: until then, nothing may follow
    /// on the stream.
    void close();

    /// Closes the group, and waits until NCCL has accepted the calls.
    void end(const std::string& what);

  private:
    // Of a function of NCCL whose last arguments are the communicator and its stream.
    template <class Function, class... Arguments>
    void add(const char* name, const Function& function, Arguments... arguments) {
        inside_.handle().call(
            name, [&](nccl::Comm& comm) { return function(arguments..., comm, inside_.stream()); });
    }

    NcclCommunicator::Inside& inside_;
    bool is_open_ = true;
};

/// Owns memory from ncclMemAlloc, registered with the communicator, if every rank's NCCL supports
/// that (a mixture is undefined); else from cudaMalloc. It must be destroyed, with its copies,
/// before its communicator is closed.
class NcclBuffer {
  public:
    /// Collective. Allocates `bytes` on every rank. Errors: E630, E681.
    NcclBuffer(NcclCommunicator& communicator, std::size_t bytes);

    void* data() const { return memory_.get(); }  ///< in GPU memory

    /// Returns true if it is registered with the communicator: then NCCL need not copy.
    bool is_registered() const { return is_registered_; }

  private:
    std::shared_ptr<void> memory_;
    bool is_registered_ = false;
};

}  // namespace lockstep
