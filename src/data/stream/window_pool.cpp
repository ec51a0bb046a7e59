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
// step that an error shows in), stream_service_test.cpp (little room, masks), lane_borders_test.cpp
// (rows kept for other windows).

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
    const std::scoped_lock lock(mutex_);
    static_cast<PlannedWindow&>(*slab) = std::move(*planned);
    slab->is_ready = false;
    slab->error = nullptr;
    lanes_[static_cast<std::size_t>(slab->window.range.lane)].push_back(slab);
    slab_issued_or_ready_.notify_one();
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
               queue.front()->window.order->epoch() == step.position.epoch &&
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

/// One I/O thread's windows: those that it has read, but that wait for rows that another thread is
/// still to keep, are completed after the next one was read.
class WindowPool::Loading {
  public:
    explicit Loading(WindowPool& pool)
        : pool_(pool), index_(pool.index_), reader_(pool.files_), plan_(index_) {}

    /// Until stop().
    void run() {
        const auto is_settled = [](const auto& rows) { return rows->are_settled(); };
        for (;;) {
            while (!read_.empty() && std::ranges::all_of(read_.front()->shared.finds, is_settled))
                complete_first();
            if (Slab* const slab = pool_.claim(read_.empty() ? Wait::yes : Wait::no)) {
                read_.push_back(slab);
                bool is_whole = false;
                guarded(*slab, [&] { is_whole = read(*slab); });
                // However reading ends, so that no thread waits for them for ever.
                for (const auto& kept : slab->shared.keeps) kept->settle(is_whole);
            } else if (read_.empty()) {
                return;
            } else {
                complete_first();
            }
        }
    }

  private:
    void complete_first() {
        Slab& slab = *read_.front();
        read_.pop_front();
        guarded(slab, [&] {
            if (!slab.error) complete(slab);
        });
        pool_.publish(slab, reader_.take_stats());
    }

    template <class Work>
    static void guarded(Slab& slab, const Work& work) {
        try {
            work();
        } catch (...) {
            slab.error = std::current_exception();
        }
    }

    /// Reads the rows of slab.window but for those that it finds, and those that it keeps. Returns
    /// true if none is lacking. Errors of both: those of BlockReader, unless samples are masked.
    bool read(Slab& slab) {
        slab.bad_rows.clear();
        plan_.clear();
        plan(slab, unkept_rows(slab.window.range, slab.shared));
        for (const auto& kept : slab.shared.keeps)
            if (kept->take_room(index_))
                plan_.add(slab.window.order->rows_of(kept->rows()), kept->fields());
            else
                kept->settle(false);
        return read_planned(slab) && slab.bad_rows.empty();
    }

    /// After read(): waits for what it finds. Then the slab is whole.
    void complete(Slab& slab) {
        plan_.clear();
        for (const auto& found : slab.shared.finds)
            if (!found->are_whole())
                plan(slab, found->rows());
            else
                found->copy_to(rows_in(slab, found->rows()));
        read_planned(slab);
        slab.shared = {};
        slab.permutation = slab.window.order->permutation_of(slab.window.range);
        number_rows(slab);
        slab.valid.clear();
        if (!slab.bad_rows.empty()) mask_rows(slab);
    }

    void plan(const Slab& slab, const LaneRange& rows) {
        plan_.add(slab.window.order->rows_of(rows), rows_in(slab, rows));
    }

    // Returns the part of the fields' memory that belongs to these lane positions, before they are
    // permuted.
    std::span<const std::span<std::byte>> rows_in(const Slab& slab, const LaneRange& rows) {
        places_.clear();
        for (std::size_t f = 0; f < slab.fields.size(); ++f) {
            const std::size_t bytes = index_.fields()[f].bytes_per_sample();
            places_.push_back(slab.fields[f].subspan((rows.begin - slab.window.range.begin) * bytes,
                                                     rows.size() * bytes));
        }
        return places_;
    }

    // Returns true if it was read to the end.
    bool read_planned(Slab& slab) {
        OnBadBlock on_bad;
        if (pool_.on_bad_data_ == BadData::mask)
            on_bad = [&](const BlockPiece& piece, const Error& error) {
                pool_.bad_blocks_.add(piece, error);
                const StoredBlock& block = index_.stored_blocks(piece.field)[piece.block];
                slab.bad_rows.push_back({block.first_row, block.rows});
            };
        plan_.arrange();
        for (const ReadRequest& request : plan_.requests()) {
            if (pool_.is_stopped_) return false;
            reader_.read(plan_, request, on_bad);
            if (pool_.page_cache_ == PageCache::drop)
                pool_.dropper_.consumed(slab.window.order->epoch(), plan_.pieces_of(request));
        }
        return true;
    }

    void number_rows(Slab& slab) {
        samples_.clear();
        for (const RowRun& run : slab.window.order->rows_of(slab.window.range))
            for (std::uint64_t i = 0; i < run.rows; ++i) samples_.push_back(run.first + i);
        slab.samples.resize(samples_.size());
        std::ranges::transform(slab.permutation, slab.samples.begin(), [&](std::uint32_t row) {
            return samples_[row];
        });
    }

    // A sample is masked in all fields if any of its fields could not be read.
    void mask_rows(Slab& slab) {
        valid_.assign(samples_.size(), 1);
        for (std::size_t row = 0; row < samples_.size(); ++row)
            for (const RowRun& bad : slab.bad_rows)
                if (samples_[row] - bad.first < bad.rows) valid_[row] = 0;
        for (std::size_t f = 0; f < slab.fields.size(); ++f) {
            const std::size_t bytes = index_.fields()[f].bytes_per_sample();
            for (std::size_t row = 0; row < valid_.size(); ++row)
                if (!valid_[row])
                    std::ranges::fill(slab.fields[f].subspan(row * bytes, bytes), std::byte{0});
        }
        slab.valid.resize(valid_.size());
        std::ranges::transform(
            slab.permutation, slab.valid.begin(), [&](std::uint32_t row) { return valid_[row]; });
    }

    WindowPool& pool_;
    const DatasetIndex& index_;
    BlockReader reader_;
    RequestPlan plan_;
    std::deque<Slab*> read_;
    std::vector<std::span<std::byte>> places_;
    std::vector<std::uint64_t> samples_;  // by row
    std::vector<std::uint8_t> valid_;     // by row
};

void WindowPool::load_windows() {
    Loading(*this).run();
}

}  // namespace lockstep
