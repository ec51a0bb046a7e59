// SPDX-License-Identifier: Apache-2.0
// A fixed number of slabs circulates between the threads that load windows and the one that
// assembles batches:
//
//     free_  --claim-->  loading  --publish-->  ready, in its lane's queue  --find--> copied from
//       ^                                                                                 |
//       +---------------------- leave, release_ended, acquire ----------------------------+
//
//     lanes_[0]   [window 4: in use] [window 5: ready]
//     lanes_[1]   [window 3: in use] [window 4: loading]
//
// Only the pool limits reading: while no slab is free, no thread reads. There is one slab more than
// lanes that the rank can hold. So the window that the assembler waits for is always in a slab or
// the next to get one: windows are issued in the order of first need, and it never waits while it
// keeps a slab that it could free.
//
// What must never happen:
// - Windows are issued in another order than the walk's. plan_mutex_ is held from the walk to the
//   queue; the loading itself is side by side.
// - A slab is freed while its rows are still to be copied: only the assembler frees slabs that were
//   issued, and it copies first what it has found before it waits for more.
// - An error is thrown where it was met: it stays in its slab and shows in the step that needs the
//   window, on whichever thread and however far ahead it was read.
//
// Tested: data/stream/batch_stream_test.cpp (least memory, any options, stopping at any moment, the
// step that an error shows in), stream_service_test.cpp (little room).

#include "window_pool.hpp"

#include "memory.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Requests to the disk at a time: enough to keep it busy, few enough that pages are not dropped
// before use.
constexpr std::uint64_t window_bytes_ahead = 16u << 20;
constexpr std::uint64_t most_windows_ahead = 16;

}  // namespace

WindowPool::WindowPool(ShardFiles& files,
                       const StreamOptions& options,
                       StreamPosition start,
                       const StreamMemory& memory)
    : files_(files),
      index_(files.index()),
      page_cache_(options.page_cache),
      on_bad_data_(options.on_bad_data),
      bad_blocks_(files),
      dropper_(files),
      memory_(memory.slabs * row_memory(index_, memory.window_rows)),
      slabs_(memory.slabs),
      walk_(index_.blocks(), options, start),
      borders_(lanes_held(index_.blocks(), options, start), start, memory.border_bytes),
      ahead_plan_(index_),
      windows_ahead_(std::clamp<std::uint64_t>(
          window_bytes_ahead / row_memory(index_, memory.window_rows), 1, most_windows_ahead)),
      lanes_(walk_.lanes()) {
    std::span<std::byte> rest = memory_.bytes();
    for (Slab& slab : slabs_) {
        slab.samples.reserve(memory.window_rows);
        slab.fields = divided(index_, memory.window_rows, rest);
        rest = rest.subspan(row_memory(index_, memory.window_rows));
        free_.push_back(&slab);
    }
}

WindowPool::~WindowPool() {
    if (page_cache_ != PageCache::drop) return;
    // Announced to the system, but never claimed: no reader drops these pages behind it.
    for (const PlannedWindow& planned : ahead_) forget(files_, plan_ahead(planned));
}

// Without waiting, for a free slab or behind who waits for one, there may be none.
Slab* WindowPool::claim(Wait wait) {
    std::unique_lock planning(plan_mutex_, std::defer_lock);
    if (wait == Wait::yes)
        planning.lock();
    else if (!planning.try_lock())
        return nullptr;
    Slab* const slab = take_free(wait);
    if (!slab) return nullptr;
    std::optional<PlannedWindow> planned = next_window();
    if (!planned) return nullptr;
    issue(*slab, std::move(*planned));
    return slab;
}

Slab* WindowPool::take_free(Wait wait) {
    std::unique_lock lock(mutex_);
    if (wait == Wait::yes) slab_freed_.wait(lock, [&] { return is_stopped_ || !free_.empty(); });
    if (is_stopped_ || free_.empty()) return nullptr;
    Slab* const slab = free_.back();
    free_.pop_back();
    return slab;
}

std::optional<PlannedWindow> WindowPool::next_window() {
    while (ahead_.size() <= windows_ahead_) {
        const std::optional<EpochWindow> window = walk_.next();
        if (!window) break;
        ahead_.push_back({*window, borders_.of(*window)});
        read_ahead(files_, plan_ahead(ahead_.back()));
    }
    if (ahead_.empty()) return {};
    PlannedWindow first = std::move(ahead_.front());
    ahead_.pop_front();
    return first;
}

// Rows that are kept for others are of blocks that the window reads anyway.
const RequestPlan& WindowPool::plan_ahead(const PlannedWindow& planned) {
    ahead_plan_.clear();
    const std::vector<std::span<std::byte>> nowhere(index_.fields().size());
    const LaneRange rest = unkept_rows(planned.window.range, planned.shared);
    ahead_plan_.add(planned.window.order->rows_of(rest), nowhere);
    ahead_plan_.arrange();
    return ahead_plan_;
}

void WindowPool::issue(Slab& slab, PlannedWindow planned) {
    const std::scoped_lock lock(mutex_);
    slab.window = std::move(planned.window);
    slab.shared = std::move(planned.shared);
    slab.is_ready = false;
    slab.error = nullptr;
    lanes_[static_cast<std::size_t>(slab.window.range.lane)].push_back(&slab);
    slab_issued_or_ready_.notify_one();
}

void WindowPool::publish(Slab& slab, const StreamStats& spent) {
    const std::scoped_lock lock(mutex_);
    slab.is_ready = true;
    stats_ += spent;
    slab_issued_or_ready_.notify_one();
}

void WindowPool::free_front(std::deque<Slab*>& queue) {
    queue.front()->window.order.reset();
    free_.push_back(queue.front());
    queue.pop_front();
    slab_freed_.notify_one();
}

const Slab* WindowPool::find(std::uint64_t epoch, int lane, std::uint64_t position) {
    const std::scoped_lock lock(mutex_);
    for (Slab* const slab : lanes_[static_cast<std::size_t>(lane)]) {
        if (is_stopped_ || !slab->is_ready) return nullptr;
        if (!slab->window.holds(epoch, position)) continue;
        if (slab->error) std::rethrow_exception(slab->error);
        return slab;
    }
    return nullptr;
}

void WindowPool::leave(std::uint64_t epoch, int lane, std::uint64_t position) {
    const std::scoped_lock lock(mutex_);
    std::deque<Slab*>& queue = lanes_[static_cast<std::size_t>(lane)];
    while (!queue.empty() && !queue.front()->window.holds(epoch, position)) free_front(queue);
}

const Slab* WindowPool::acquire(std::uint64_t epoch, int lane, std::uint64_t position) {
    std::unique_lock lock(mutex_);
    std::deque<Slab*>& queue = lanes_[static_cast<std::size_t>(lane)];
    while (!is_stopped_) {
        if (queue.empty() || !queue.front()->is_ready) {
            slab_issued_or_ready_.wait(lock);
        } else if (!queue.front()->window.holds(epoch, position)) {
            free_front(queue);
        } else {
            if (queue.front()->error) std::rethrow_exception(queue.front()->error);
            return queue.front();
        }
    }
    return nullptr;
}

void WindowPool::release_ended(const Step& step) {
    const std::uint64_t lanes = lanes_.size(), end = step.position.consumed + step.samples;
    const std::uint64_t rounds = end / lanes, rest = end % lanes;
    // Windows of samples that are dropped with a short step end with their epoch.
    const bool ends_epoch = step.next.epoch != step.position.epoch;
    const std::scoped_lock lock(mutex_);
    for (std::uint64_t lane = 0; lane < lanes; ++lane) {
        std::deque<Slab*>& queue = lanes_[lane];
        const std::uint64_t reached = rounds + (lane < rest ? 1 : 0);
        while (!queue.empty() && queue.front()->is_ready &&
               queue.front()->window.epoch == step.position.epoch &&
               (ends_epoch || queue.front()->window.range.end <= reached))
            free_front(queue);
    }
}

void WindowPool::stop() {
    const std::scoped_lock lock(mutex_);
    is_stopped_ = true;
    slab_freed_.notify_all();
    slab_issued_or_ready_.notify_all();
}

StreamStats WindowPool::stats() const {
    const std::scoped_lock lock(mutex_);
    return stats_;
}

}  // namespace lockstep
