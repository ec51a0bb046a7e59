// SPDX-License-Identifier: Apache-2.0
// One launch of NCCL: calls that go to the communicator's stream together.
#pragma once

#include "lockstep/comm/flat_layout.hpp"

#include "nccl/nccl_inside.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

/// Calls between construction and end() are one launch. Left by an exception, the group is closed
/// all the same: an open one would swallow every later call of this thread. All memory is the
/// GPU's.
class NcclGroup {
  public:
    explicit NcclGroup(NcclCommunicator::Inside& inside);
    ~NcclGroup();
    NcclGroup(const NcclGroup&) = delete;
    NcclGroup& operator=(const NcclGroup&) = delete;

    /// To or from `peer`. All messages of a group move at once; those between two ranks match in
    /// the order of the calls.
    void send(int peer, std::span<const float> floats);
    void receive(int peer, std::span<float> floats);

    /// In place: each number becomes its sum over all ranks.
    void add_up(std::span<std::int64_t> numbers);

    /// In place: this rank's stripe of a bucket of `vector` becomes its sum, in NCCL's own order.
    /// What the other stripes hold afterwards is unspecified.
    void scatter_sum(float* vector, const FlatLayout& layout, std::size_t bucket);

    /// In place: a bucket of `vector` becomes every rank's stripe.
    void gather_stripes(float* vector, const FlatLayout& layout, std::size_t bucket);

    /// NCCL takes the calls in the background: until it has, nothing may follow on the stream.
    void close();

    /// Closes, and waits until NCCL has taken the calls.
    void end(const std::string& what);

  private:
    NcclCommunicator::Inside& inside_;
    bool is_open_ = true;
};

}  // namespace lockstep
