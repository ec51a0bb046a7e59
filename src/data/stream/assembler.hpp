// SPDX-License-Identifier: Apache-2.0
// Assembles the rows of a step from the windows of its lanes.
#pragma once

#include "batch_buffers.hpp"
#include "read_plan.hpp"
#include "window_pool.hpp"

#include <cstdint>
#include <vector>

namespace lockstep {

/// Finds the rows of all loaded lanes first, then copies them: rows of other lanes then travel to
/// the cache while one is copied. One thread.
class Assembler {
  public:
    Assembler(const DatasetIndex& index, WindowPool& windows);

    /// Fills the rows, sample ids and valid rows of `room`. Returns false after the pool was
    /// stopped. Errors: those of loading.
    bool assemble(const Step& step, BatchRoom& room);

    /// Returns the seconds since the last call, without waiting.
    double take_seconds();
    std::uint64_t masked_samples() const { return masked_samples_; }

  private:
    // The position in a lane.
    struct Current {
        const Slab* slab = nullptr;
        std::uint64_t epoch = 0;
        LaneRange range;
    };
    // Rows of one window that are contiguous in the batch.
    struct Found {
        const Slab* slab;
        std::uint64_t first, rows;  // positions within the window
    };

    bool find_part(const Step& step, const LaneRange& part);
    const Current* window_at(std::uint64_t epoch, int lane, std::uint64_t position);
    void copy_found();
    void copy_field(std::size_t field);
    void copy_valid(const Found& found, std::size_t row);

    const DatasetIndex& index_;
    WindowPool& windows_;
    std::vector<Current> lanes_;
    std::vector<Found> found_;
    std::vector<int> left_;               // lanes that moved to another window without waiting
    std::vector<const std::byte*> rows_;  // rows of one field
    BatchRoom* room_ = nullptr;           // the current room
    std::size_t copied_ = 0;              // rows copied to it
    double busy_s_ = 0, waited_s_ = 0;
    std::uint64_t masked_samples_ = 0;
};

}  // namespace lockstep
