// SPDX-License-Identifier: Apache-2.0
// A fixed number of batch buffers that go from the assembler to the consumer and back.
#pragma once

#include "lockstep/core/page_lock.hpp"
#include "lockstep/data/batch_stream.hpp"

#include "memory.hpp"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace lockstep {

/// The data of a batch, kept and reused here: freeing lists that another thread allocated took its
/// consumer longer than taking the next batch.
struct BatchRoom {
    std::vector<std::span<std::byte>>
        places;  ///< by field, each with room for the rows of the largest batch
    std::vector<std::uint64_t> sample_ids;  ///< by row
    std::vector<std::uint8_t> valid;        ///< by row, or empty
    std::vector<LeafRows> leaves;
    std::vector<std::span<const std::byte>> fields;  ///< the filled part of `places`
};

/// A pool of buffers. Any thread. It lives as long as a lease does.
class BatchBuffers : public std::enable_shared_from_this<BatchBuffers> {
  public:
    /// Throws what `page_lock` throws.
    BatchBuffers(const DatasetIndex& index,
                 std::size_t count,
                 std::uint64_t rows,
                 const PageLock& page_lock = {});

    static std::uint64_t buffer_bytes(const DatasetIndex& index, std::uint64_t rows);
    std::uint64_t memory_bytes() const { return memory_.bytes().size(); }

    /// Room for one batch; the destruction of `lease` gives it back.
    struct Lent {
        BatchRoom* room = nullptr;
        std::shared_ptr<void> lease;
    };

    /// Waits for a free buffer. Returns no lease after stop().
    Lent take();
    /// Returns no lease if none is free.
    Lent try_take();
    void stop();

  private:
    Lent lend();  // under the mutex, with a free buffer
    void give_back(std::size_t buffer);

    Memory memory_;
    LockedPages locked_;
    std::vector<BatchRoom> rooms_;
    std::mutex mutex_;
    std::condition_variable given_back_;
    std::vector<std::size_t> free_;
    // Waking a thread costs the returning thread microseconds, so several buffers are returned
    // before one wake-up. It is at most the number of free ones when the consumer holds all but one
    // that it may hold and can take none.
    const std::size_t worth_waking_;
    bool is_stopped_ = false;
};

}  // namespace lockstep
