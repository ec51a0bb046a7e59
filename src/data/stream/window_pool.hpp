// SPDX-License-Identifier: Apache-2.0
// Windows between the files and the assembler, in a fixed number of preallocated slabs.
#pragma once

#include "lockstep/core/pages.hpp"

#include "block_reader.hpp"
#include "lane_borders.hpp"
#include "memory.hpp"
#include "read_plan.hpp"
#include "request_plan.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep {

struct PlannedWindow {
    EpochWindow window;
    SharedRows shared;
};

/// One window's rows, by field, as stored; and their places by the lane's positions. What it shares
/// is there until it is loaded.
struct Slab : PlannedWindow {
    std::vector<std::span<std::byte>> fields;
    std::vector<std::uint32_t> permutation;  ///< row of each lane position of the window
    std::vector<std::uint64_t> samples;      ///< global number at each lane position
    std::vector<std::uint8_t> valid;         ///< at each lane position; empty: all are
    std::vector<RowRun> bad_rows;            ///< masked rows
    std::exception_ptr error;
    bool is_ready = false;
};

/// Gives windows to I/O threads in the order of need, and to the assembler when they are loaded.
/// With a slab for each lane that can be held, and one more, neither waits for ever. Any thread,
/// but only one assembler.
class WindowPool {
  public:
    WindowPool(ShardFiles& files,
               const StreamOptions& options,
               StreamPosition start,
               const StreamMemory& memory);
    ~WindowPool();
    WindowPool& operator=(WindowPool&&) = delete;

    std::size_t lanes() const { return lanes_.size(); }

    /// For I/O threads: loads windows until stop().
    void load_windows();

    /// For the assembler: returns the slab with `position` of `lane` if it is loaded. Rethrows
    /// errors of loading.
    const Slab* find(std::uint64_t epoch, int lane, std::uint64_t position);

    /// Frees the slabs before the result of find().
    void leave(std::uint64_t epoch, int lane, std::uint64_t position);

    /// Does the same as find(), but waits; nullptr after stop(). Slabs of windows that the lane has
    /// left become free.
    const Slab* acquire(std::uint64_t epoch, int lane, std::uint64_t position);

    /// For the assembler: frees the slabs of all windows whose end a step has reached.
    void release_ended(const Step& step);

    void stop();
    StreamStats stats() const;

  private:
    class Loading;
    enum class Wait { no, yes };
    Slab* claim(Wait wait);
    Slab* take_free(Wait wait);
    std::optional<PlannedWindow> next_window();
    const RequestPlan& plan_ahead(const PlannedWindow& planned);
    void publish(Slab& slab, const StreamStats& spent);
    void free_front(std::deque<Slab*>& queue);

    ShardFiles& files_;
    const DatasetIndex& index_;
    PageCache page_cache_;
    BadData on_bad_data_;
    BadBlocks bad_blocks_;
    PageDropper dropper_;
    Pages memory_;
    std::vector<Slab> slabs_;

    std::mutex plan_mutex_;  // locked before mutex_; so windows are issued in the walk's order
    WindowWalk walk_;
    LaneBorders borders_;
    RequestPlan ahead_plan_;
    std::deque<PlannedWindow> ahead_;  // next to be issued; the system is reading them ahead
    std::size_t windows_ahead_;

    mutable std::mutex mutex_;
    std::condition_variable slab_freed_, slab_issued_or_ready_;
    std::vector<Slab*> free_;
    std::vector<std::deque<Slab*>> lanes_;  // issued, in order
    StreamStats stats_;
    std::atomic<bool> is_stopped_ = false;  // written under the mutex
};

}  // namespace lockstep
