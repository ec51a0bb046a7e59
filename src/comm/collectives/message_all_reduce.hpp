// SPDX-License-Identifier: Apache-2.0
// What the textbook algorithms share: messages, memory, and the sum of two buffers.
#pragma once

#include "lockstep/comm/collectives.hpp"

#include "base/aligned_floats.hpp"
#include "collectives/messages.hpp"
#include "collectives/private_memory.hpp"

#include <cstddef>

namespace lockstep {

/// An all-reduce over messages. One rank sums over itself: nothing to do.
class MessageAllReduce : public AllReduce {
  public:
    explicit MessageAllReduce(const Communicator& ranks) : messages_(ranks) {}

    std::byte* lend(std::size_t bytes) final { return lent_.lend(bytes); }
    void all_reduce(void* data, std::size_t count, DataType type) final;

  protected:
    int rank() const { return messages_.rank(); }
    int size() const { return messages_.size(); }
    Messages& messages() { return messages_; }

    /// Room for elements that arrive, as many as in `like`; place `index` of those in use at once,
    /// all of the same size. Valid until a larger one is asked for.
    Elements scratch(const Elements& like, int index = 0, int places = 1);

    /// into[i] += from[i]. bfloat16 is rounded once.
    static void add(const Elements& into, const Elements& from);

  private:
    /// Collective. On two or more ranks.
    virtual void reduce(const Elements& all) = 0;

    Messages messages_;
    PrivateMemory lent_;
    AlignedFloats scratch_;
    std::size_t scratch_bytes_ = 0;
};

}  // namespace lockstep
