// SPDX-License-Identifier: Apache-2.0
// Fills slabs: one I/O thread's way of reading a window.
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
    /// Leaves off between requests when `is_stopped`.
    WindowLoader(ShardFiles& files, const std::atomic<bool>& is_stopped)
        : index_(files.index()), is_stopped_(is_stopped), reader_(files), plan_(index_) {}

    /// From now on pages are dropped when their rows are read.
    void drop_pages(PageDropper& dropper) { dropper_ = &dropper; }

    /// From now on rows of blocks that cannot be had become zeros, in all fields.
    void mask(BadBlocks& bad_blocks) { bad_blocks_ = &bad_blocks; }

    /// Reads the rows of slab.window. Errors: those of BlockReader, unless it masks.
    void load(Slab& slab);

    StreamStats take_stats() { return reader_.take_stats(); }

  private:
    void read_all(const Slab& slab);
    void number_rows(Slab& slab);
    void mask_rows(Slab& slab);

    const DatasetIndex& index_;
    const std::atomic<bool>& is_stopped_;
    BlockReader reader_;
    RequestPlan plan_;
    PageDropper* dropper_ = nullptr;
    BadBlocks* bad_blocks_ = nullptr;
    std::vector<RowRun> runs_, bad_rows_;  // of the window at hand
    std::vector<std::uint64_t> samples_;   // by row
    std::vector<std::uint8_t> valid_;      // by row
};

}  // namespace lockstep
