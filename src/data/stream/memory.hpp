// SPDX-License-Identifier: Apache-2.0
// The memory of a stream: its division among the fields of rows, each from a line of its own on,
// the batch buffers that are made of it, and the sizes of all pools, checked against the job's
// memory.
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/data/batch_stream.hpp"
#include "lockstep/data/dataset_index.hpp"

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
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

    enum class Wait { no, yes };
    /// Without lease after stop(), and where none is free and it may not wait for one.
    Lent take(Wait wait = Wait::yes);
    void stop();

  private:
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

/// Batches that a caller may hold while it requests another one, and that one.
inline constexpr std::size_t lendable_batches = 4;

/// The pools of a stream. A value.
struct StreamMemory {
    std::uint64_t window_rows = 0, batch_rows = 0;
    std::size_t slabs = 0, batches = lendable_batches;
    int readers = 1;
    std::uint64_t slab_bytes = 0, batch_bytes = 0, reader_bytes = 0;
    std::uint64_t border_bytes = 0;  ///< bytes of LaneBorders
    bool are_batches_locked = false;
    std::uint64_t allowed_bytes = 0;           ///< limit of the options
    std::optional<std::uint64_t> limit_bytes;  ///< limit of the control group

    std::uint64_t bytes() const {
        return slabs * slab_bytes + batches * batch_bytes +
               static_cast<std::uint64_t>(readers) * reader_bytes + border_bytes;
    }
    /// Returns "reading: 246 MiB of the 256 MiB allowed: 80 windows of 3 MiB, ...".
    std::string text() const;
};

/// Returns the largest number of I/O threads under `options`.
int most_io_threads(const StreamOptions& options);

/// Returns as many windows and threads as the options permit, and the limit of the control group
/// minus this process's present memory. Errors: E106 if the options allow too little; E224 if the
/// limit does.
StreamMemory plan_memory(const DatasetIndex& index,
                         const StreamOptions& options,
                         StreamPosition start);

/// Looks at a stream's totals now and then. Where the caller waited for more than 1 % of the time
/// since the last look and the I/O threads were busy, one more is worth trying; where they were
/// not, something else is slow. A value; knows nothing of threads or clocks.
class ThreadGrowth {
  public:
    /// Between two looks. Long enough for a share of 1 % to mean something.
    static constexpr double interval_s = 0.2;

    explicit ThreadGrowth(int most) : most_(most) {}

    bool is_due(double now) const { return now >= next_look_s_; }

    enum class Advice {
        none,  ///< the first look only begins: a stream that starts is always waited for
        keep,
        add
    };
    /// `total.io_threads` are in use at `now`.
    Advice look(double now, const StreamStats& total);

    /// The share of the time that the caller waited between the last two looks.
    double waited_share() const { return waited_share_; }

  private:
    int most_;
    double next_look_s_ = 0, last_look_s_ = 0, waited_share_ = 0;
    bool has_begun_ = false;
    StreamStats last_;
};

}  // namespace lockstep
