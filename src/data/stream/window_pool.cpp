// SPDX-License-Identifier: Apache-2.0
#include "window_pool.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {
namespace {

void add(StreamStats& total, const StreamStats& part) {
    total.read_s += part.read_s;
    total.verify_s += part.verify_s;
    total.decode_s += part.decode_s;
    total.bytes_read += part.bytes_read;
    total.blocks_read += part.blocks_read;
    total.retries += part.retries;
}

}  // namespace

WindowPool::WindowPool(const DatasetIndex& index,
                       const StreamOptions& options,
                       StreamPosition start,
                       std::size_t slabs,
                       std::uint64_t rows)
    : index_(index),
      walk_(index.blocks(), options, start),
      memory_(slabs * slab_bytes(index, rows)),
      slabs_(slabs),
      lanes_(walk_.lanes()) {
    divide_memory(rows);
    for (Slab& slab : slabs_) free_.push_back(&slab);
}

std::uint64_t WindowPool::slab_bytes(const DatasetIndex& index, std::uint64_t rows) {
    std::uint64_t bytes = 0;
    for (const Field& field : index.fields()) bytes += aligned(rows * field.bytes_per_sample());
    return bytes;
}

std::uint64_t WindowPool::memory_bytes() const {
    return memory_.bytes().size();
}

void WindowPool::divide_memory(std::uint64_t rows) {
    std::span<std::byte> rest = memory_.bytes();
    for (Slab& slab : slabs_)
        for (const Field& field : index_.fields()) {
            const std::uint64_t bytes = rows * field.bytes_per_sample();
            slab.fields.push_back(rest.first(bytes));
            rest = rest.subspan(aligned(bytes));
        }
}

void WindowPool::load_windows(ShardFiles& files) {
    BlockReader reader(files);
    while (Slab* const slab = claim()) {
        try {
            load(reader, *slab);
        } catch (...) {
            slab->error = std::current_exception();
        }
        publish(*slab, reader.take_stats());
    }
}

Slab* WindowPool::claim() {
    std::unique_lock lock(mutex_);
    slab_freed_.wait(lock, [&] { return is_stopped_ || !free_.empty(); });
    if (is_stopped_) return nullptr;
    std::optional<EpochWindow> window = walk_.next();
    if (!window) return nullptr;
    Slab* const slab = free_.back();
    free_.pop_back();
    slab->window = std::move(*window);
    slab->is_ready = false;
    slab->error = nullptr;
    lanes_[static_cast<std::size_t>(slab->window.range.lane)].push_back(slab);
    slab_issued_or_ready_.notify_one();
    return slab;
}

void WindowPool::publish(Slab& slab, const StreamStats& spent) {
    const std::scoped_lock lock(mutex_);
    slab.is_ready = true;
    add(stats_, spent);
    slab_issued_or_ready_.notify_one();
}

void WindowPool::load(BlockReader& reader, Slab& slab) {
    const EpochOrder& order = *slab.window.order;
    slab.samples.clear();
    for (const RowRun& run : order.rows_of(slab.window.range)) {
        if (is_stopped_) return;
        for (std::size_t f = 0; f < slab.fields.size(); ++f) {
            const std::size_t row_bytes = index_.fields()[f].bytes_per_sample();
            reader.read_rows(
                f,
                run.first,
                run.rows,
                slab.fields[f].subspan(slab.samples.size() * row_bytes, run.rows * row_bytes));
        }
        for (std::uint64_t i = 0; i < run.rows; ++i) slab.samples.push_back(run.first + i);
    }
    slab.permutation = order.permutation_of(slab.window.range);
}

void WindowPool::free_front(std::deque<Slab*>& queue) {
    queue.front()->window.order.reset();
    free_.push_back(queue.front());
    queue.pop_front();
    slab_freed_.notify_one();
}

const Slab* WindowPool::acquire(std::uint64_t epoch, int lane, std::uint64_t position) {
    std::unique_lock lock(mutex_);
    std::deque<Slab*>& queue = lanes_[static_cast<std::size_t>(lane)];
    while (!is_stopped_) {
        if (queue.empty()) {
            slab_issued_or_ready_.wait(lock);
        } else if (!queue.front()->is_ready) {
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
    const std::uint64_t lanes = lanes_.size();
    const std::uint64_t end = step.position.consumed + step.samples;
    const std::scoped_lock lock(mutex_);
    for (std::uint64_t lane = 0; lane < lanes; ++lane) {
        std::deque<Slab*>& queue = lanes_[lane];
        const std::uint64_t reached = end <= lane ? 0 : (end - lane - 1) / lanes + 1;
        while (!queue.empty() && queue.front()->is_ready &&
               queue.front()->window.epoch == step.position.epoch &&
               queue.front()->window.range.end <= reached)
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
