// SPDX-License-Identifier: Apache-2.0
// Elements that travel between ranks: what the algorithms over MPI point-to-point are written with.
#pragma once

#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/data_type.hpp"

#include <cstddef>
#include <vector>

#include <mpi.h>

namespace lockstep {

/// `count` elements of `type` at `data`; a view.
struct Elements {
    std::byte* data = nullptr;
    std::size_t count = 0;
    DataType type = DataType::float32;

    std::size_t bytes() const { return count * size_of(type); }

    /// Chunk `index` (any integer, taken modulo `parts`) of `parts`; may be empty.
    Elements chunk(int index, int parts) const;
};

/// Sends and receives of any size within one group, in order between each pair of ranks. Empty
/// views are not sent.
class Messages {
  public:
    explicit Messages(const Communicator& ranks) : ranks_(ranks.duplicate()) {}

    int rank() const { return ranks_.rank(); }
    int size() const { return ranks_.size(); }

    void start_send(const Elements& from, int to);
    void start_receive(const Elements& into, int from);

    /// Waits for all that was started.
    void finish();

    void send(const Elements& from, int to);
    void receive(const Elements& into, int from);

    /// Sends `out` and receives `in`, both at once.
    void exchange(const Elements& out, int to, const Elements& in, int from);

  private:
    Communicator ranks_;
    std::vector<MPI_Request> requests_;
};

}  // namespace lockstep
