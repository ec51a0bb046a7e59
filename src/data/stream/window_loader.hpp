// SPDX-License-Identifier: Apache-2.0
// Fills slabs: reads a window on one I/O thread.
#pragma once

#include "bad_blocks.hpp"
#include "block_reader.hpp"
#include "page_cache.hpp"

#include <atomic>
#include <vector>

namespace lockstep {

struct Slab;

/// One thread.
class WindowLoader {
  public:
    /// Stops between requests when `is_stopped`.
    WindowLoader(ShardFiles& files, const std::atomic<bool>& is_stopped)
        : index_(files.index()), is_stopped_(is_stopped), reader_(files), plan_(index_) {}

    /// From now on pages are dropped when their rows are read.
    void drop_pages(PageDropper& dropper) { dropper_ = &dropper; }

    /// From now on rows of bad blocks become zeros, in all fields.
    void mask(BadBlocks& bad_blocks) { bad_blocks_ = &bad_blocks; }

    /// Reads the rows of slab.window except those that it finds, and settles those that it keeps.
    /// Errors of both: those of BlockReader, unless it masks.
    void read(Slab& slab);

    /// Waits for the rows that it finds, after read(). Then the slab is complete.
    void complete(Slab& slab);

    StreamStats take_stats() { return reader_.take_stats(); }

  private:
    void plan(const Slab& slab, const LaneRange& rows);
    std::span<const std::span<std::byte>> rows_in(const Slab& slab, const LaneRange& rows);
    bool read_planned(Slab& slab);
    void number_rows(Slab& slab);
    void mask_rows(Slab& slab);

    const DatasetIndex& index_;
    const std::atomic<bool>& is_stopped_;
    BlockReader reader_;
    RequestPlan plan_;
    PageDropper* dropper_ = nullptr;
    BadBlocks* bad_blocks_ = nullptr;
    std::vector<RowRun> runs_;  // runs of the current window
    std::vector<std::span<std::byte>> places_;
    std::vector<std::uint64_t> samples_;  // by row
    std::vector<std::uint8_t> valid_;     // by row
};

}  // namespace lockstep
