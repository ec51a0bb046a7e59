// SPDX-License-Identifier: Apache-2.0
// The division of memory among the fields of rows, each from a line of its own on, and the batch
// buffers that are made of it.
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace lockstep {

inline constexpr std::uint64_t buffer_alignment = 64;

/// Returns `bytes` rounded up so that the next item is aligned.
constexpr std::uint64_t aligned(std::uint64_t bytes) {
    return (bytes + buffer_alignment - 1) / buffer_alignment * buffer_alignment;
}

std::uint64_t row_memory(const DatasetIndex& index, std::uint64_t rows);

/// Returns the fields' parts of `memory` of that size, each with room for exactly `rows`.
std::vector<std::span<std::byte>> divided(const DatasetIndex& index,
                                          std::uint64_t rows,
                                          std::span<std::byte> memory);

/// What a batch shows is kept here, and used again: freeing lists that another thread allocated
/// took its consumer longer than taking the next batch.
struct BatchRoom {
    std::vector<std::span<std::byte>> places;  ///< by field, each for the rows of the largest batch
    std::vector<std::uint64_t> sample_ids;     ///< by row
    std::vector<std::uint8_t> valid;           ///< by row, or empty
    std::vector<LeafRows> leaves;
    std::vector<std::span<const std::byte>> fields;  ///< of `places`, as much as is filled
};

/// Any thread. Lives as long as a lease does.
class BatchBuffers : public std::enable_shared_from_this<BatchBuffers> {
  public:
    /// What `page_lock` throws passes through.
    BatchBuffers(const DatasetIndex& index,
                 std::size_t count,
                 std::uint64_t rows,
                 const PageLock& page_lock = {});

    std::uint64_t memory_bytes() const { return memory_.bytes().size(); }

    /// Room for one batch; the destruction of `lease` gives it back.
    struct Lent {
        BatchRoom* room = nullptr;
        std::shared_ptr<void> lease;
    };

    /// Waits for a free buffer; without lease after stop().
    Lent take();
    /// Without lease where none is free.
    Lent try_take();
    void stop();

  private:
    Lent lend();  // under the mutex, with a free one
    void give_back(std::size_t buffer);

    Pages memory_;
    LockedPages locked_;
    std::vector<BatchRoom> rooms_;
    std::mutex mutex_;
    std::condition_variable given_back_;
    std::vector<std::size_t> free_;
    // Waking a thread costs who gives a buffer back microseconds: better once for several. No more
    // than are free when the consumer holds all but one that it may hold and has none to take.
    const std::size_t worth_waking_;
    bool is_stopped_ = false;
};

/// Copies `bytes` from each of `rows` to `to`, end to end. Rows far from each other are fetched
/// into the processor's cache before their turn.
void gather_rows(std::span<const std::byte* const> rows, std::size_t bytes, std::byte* to);

}  // namespace lockstep
