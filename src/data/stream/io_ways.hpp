// SPDX-License-Identifier: Apache-2.0
// The methods of reading a data set, each ready to be timed.
#pragma once

#include "lockstep/core/pages.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/measure_io.hpp"

#include "memory.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace lockstep {

/// Rows of one field and one shard that are stored side by side.
struct RowSpan {
    std::size_t field = 0;
    std::uint32_t shard = 0;
    std::uint64_t first = 0, rows = 0;
};

inline constexpr std::uint64_t request_bytes = 1u << 20;

/// A piece of one file, at most one request.
struct FilePiece {
    std::uint32_t shard = 0;
    std::uint64_t offset = 0, bytes = 0;
};

/// The first rows of a data set and their places.
struct Portion {
    std::uint64_t rows = 0, decoded_bytes = 0, stored_bytes = 0;
    std::uint64_t largest_span = 0;  ///< decoded bytes
    std::vector<RowSpan> spans;      ///< neighbouring blocks up to 1 MiB stored, fields in turn
    std::vector<FilePiece> files;    ///< the same bytes, ascending in each file
};

/// Returns as many rows as fit into `limit_bytes`, decoded; at least one block.
Portion first_rows(const DatasetIndex& index, std::uint64_t limit_bytes);

/// The common data of the methods; made once.
struct IoBench {
    IoBench(std::shared_ptr<const DatasetIndex> opened, const IoPlan& plan_of);

    /// Returns this thread's share of the ring.
    std::span<std::byte> ring_part(int thread, int threads) const;

    /// Returns how often a hot pass reads the portion.
    std::uint64_t hot_repeats() const;

    const IoPlan& plan;
    std::shared_ptr<const DatasetIndex> index;
    Portion portion;
    Pages ring;  ///< its pages are already mapped
};

/// Reads the portion `repeats` times in all by the way and with the threads of `row`. Returns it
/// with the results of this pass.
IoRow run_way(const IoBench& bench, IoRow row, std::uint64_t repeats);

/// Calls prepare(thread) on each of `threads` threads; when all are done, calls what they returned
/// and returns the seconds from the first that begins to the last that ends. Each has a processor
/// of its own, where there are enough. The first exception of any comes out of here.
double timed_threads(int threads, const std::function<std::function<void()>(int)>& prepare);

/// Buffers that are used over and over, as a reader with a fixed amount of memory uses its own. One
/// thread.
class Ring {
  public:
    explicit Ring(std::span<std::byte> memory) : memory_(memory) {}

    /// The next `bytes`, at most as many as there are.
    std::span<std::byte> next(std::size_t bytes) {
        if (at_ + bytes > memory_.size()) at_ = 0;
        const std::span<std::byte> place = memory_.subspan(at_, bytes);
        at_ += aligned(bytes);
        return place;
    }

  private:
    std::span<std::byte> memory_;
    std::size_t at_ = 0;
};

}  // namespace lockstep
