// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/batch_stream.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "batch_buffers.hpp"
#include "block_reader.hpp"
#include "read_plan.hpp"
#include "window_pool.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t batch_buffers = 4;

void check_options(const StreamOptions& options) {
    const bool makes_sense = options.batch >= 1 && options.virtual_ranks >= 1 &&
                             options.first_leaf >= 0 && options.first_leaf < options.last_leaf &&
                             options.last_leaf <= options.virtual_ranks && options.lanes >= 1 &&
                             options.window_blocks >= 1;
    expect(makes_sense, "a stream's options make sense");
    check(options.io_threads >= 0 && options.io_threads <= 1024, [&] {
        return Error("E102",
                     fmt::format("{} I/O threads", options.io_threads),
                     "1 to 1024 are possible, or 0 for as many as are needed");
    });
}

int threads_at_first(const StreamOptions& options) {
    return std::max(options.io_threads, 1);
}

// How much of everything a stream makes.
struct Sizes {
    std::uint64_t window_rows = 0, batch_rows = 0;
    std::size_t slabs = 0;
    std::uint64_t fixed_bytes = 0;  // batches and the readers' buffers
};

Error too_little_memory(std::uint64_t needed, const StreamOptions& options, std::size_t lanes) {
    const bool is_lanes = options.order == OrderKind::lanes;
    return Error("E106",
                 fmt::format("reading needs {} of buffers; {} are allowed",
                             bytes_text(needed),
                             bytes_text(options.memory_bytes)),
                 is_lanes ? fmt::format("a window of {} blocks for each of {} lanes, and one more",
                                        options.window_blocks,
                                        lanes)
                          : fmt::format("order '{}' keeps this much", order_name(options.order)),
                 is_lanes
                     ? "allow more memory; or, in a new run, use fewer lanes or smaller windows"
                     : "allow more memory, or use the order 'lanes' in a new run");
}

Sizes size_stream(const DatasetIndex& index, const StreamOptions& options, StreamPosition start) {
    const std::vector<RowBlock> blocks = index.blocks();
    const auto order = OrderCache(blocks, options).of_epoch(start.epoch);
    Sizes sizes;
    sizes.window_rows = order->max_window_rows();
    sizes.batch_rows = most_rows(options, index.samples());
    sizes.fixed_bytes =
        batch_buffers * BatchBuffers::buffer_bytes(index, sizes.batch_rows) +
        static_cast<std::uint64_t>(threads_at_first(options)) * BlockReader::buffer_bytes(index);
    const std::size_t held = lanes_held(blocks, options, start);
    const std::uint64_t windows = (index.samples() - 1) / sizes.window_rows + 1;
    const std::size_t ahead = std::min<std::uint64_t>(std::max<std::size_t>(8, held / 4), windows);
    const std::uint64_t slab = WindowPool::slab_bytes(index, sizes.window_rows);
    const std::uint64_t least = sizes.fixed_bytes + (held + 1) * slab;
    if (least > options.memory_bytes) throw too_little_memory(least, options, held);
    sizes.slabs =
        std::min<std::uint64_t>(held + ahead, (options.memory_bytes - sizes.fixed_bytes) / slab);
    return sizes;
}

}  // namespace

class BatchStream::Impl {
  public:
    Impl(std::shared_ptr<const DatasetIndex> index,
         const StreamOptions& options,
         StreamPosition start,
         const Sizes& sizes);
    ~Impl() { stop(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    Batch next();
    StreamStats stats() const;
    std::uint64_t memory_bytes() const {
        return windows_.memory_bytes() + buffers_->memory_bytes() + reader_bytes_;
    }

  private:
    void start_threads();
    void run_guarded(void (Impl::*work)());
    void load_windows() { windows_.load_windows(files_); }
    void assemble_batches();
    bool assemble(const Step& step, Batch& batch);
    bool copy_part(const Step& step,
                   const LaneRange& part,
                   Batch& batch,
                   const std::vector<std::span<std::byte>>& out);
    void describe_leaves(const Step& step, Batch& batch) const;
    void deliver(Batch batch, double seconds);
    void stop();

    std::shared_ptr<const DatasetIndex> index_;
    StreamOptions options_;
    StreamPosition start_;
    std::uint64_t reader_bytes_;
    ShardFiles files_;
    WindowPool windows_;
    std::shared_ptr<BatchBuffers> buffers_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Batch> ready_;
    std::vector<std::weak_ptr<void>> lent_;  // to the consumer
    std::exception_ptr error_;
    double assemble_s_ = 0, wait_s_ = 0;

    std::vector<std::thread> threads_;
};

BatchStream::Impl::Impl(std::shared_ptr<const DatasetIndex> index,
                        const StreamOptions& options,
                        StreamPosition start,
                        const Sizes& sizes)
    : index_(std::move(index)),
      options_(options),
      start_(start),
      reader_bytes_(static_cast<std::uint64_t>(threads_at_first(options)) *
                    BlockReader::buffer_bytes(*index_)),
      files_(index_),
      windows_(*index_, options, start, sizes.slabs, sizes.window_rows),
      buffers_(std::make_shared<BatchBuffers>(*index_, batch_buffers, sizes.batch_rows)) {
    try {
        start_threads();
    } catch (...) {
        stop();
        throw;
    }
}

void BatchStream::Impl::start_threads() {
    for (int i = 0; i < threads_at_first(options_); ++i)
        threads_.emplace_back([this] { run_guarded(&Impl::load_windows); });
    threads_.emplace_back([this] { run_guarded(&Impl::assemble_batches); });
}

void BatchStream::Impl::run_guarded(void (Impl::*work)()) {
    try {
        (this->*work)();
    } catch (...) {
        const std::scoped_lock lock(mutex_);
        if (!error_) error_ = std::current_exception();
        changed_.notify_all();
    }
}

void BatchStream::Impl::assemble_batches() {
    StepWalk walk(index_->blocks(), options_, start_);
    for (;;) {
        const Step step = walk.next();
        Batch batch;
        if (!assemble(step, batch)) return;
        windows_.release_ended(step);
    }
}

bool BatchStream::Impl::assemble(const Step& step, Batch& batch) {
    BatchBuffers::Lent buffer = buffers_->take();
    if (!buffer.lease) return false;
    const double since = now_s();
    batch.lease = std::move(buffer.lease);
    batch.position = step.position;
    batch.next = step.next;
    batch.samples_in_step = static_cast<std::int64_t>(step.samples);
    batch.sample_ids.reserve(step.rows);
    describe_leaves(step, batch);
    for (const LaneRange& part : step.slice)
        if (!copy_part(step, part, batch, buffer.fields)) return false;
    for (std::size_t f = 0; f < buffer.fields.size(); ++f)
        batch.fields.push_back(
            buffer.fields[f].first(step.rows * index_->fields()[f].bytes_per_sample()));
    deliver(std::move(batch), now_s() - since);
    return true;
}

void BatchStream::Impl::describe_leaves(const Step& step, Batch& batch) const {
    const std::uint64_t origin =
        leaf_begin(step.samples, options_.first_leaf, options_.virtual_ranks);
    for (int leaf = options_.first_leaf; leaf < options_.last_leaf; ++leaf) {
        const std::uint64_t begin = leaf_begin(step.samples, leaf, options_.virtual_ranks);
        const std::uint64_t end = leaf_begin(step.samples, leaf + 1, options_.virtual_ranks);
        batch.leaves.push_back({leaf, begin - origin, end - begin});
    }
}

bool BatchStream::Impl::copy_part(const Step& step,
                                  const LaneRange& part,
                                  Batch& batch,
                                  const std::vector<std::span<std::byte>>& out) {
    for (std::uint64_t position = part.begin; position < part.end;) {
        const Slab* const slab = windows_.acquire(step.position.epoch, part.lane, position);
        if (!slab) return false;
        const LaneRange& window = slab->window.range;
        const std::uint64_t end = std::min(part.end, window.end);
        const std::size_t first_row = batch.sample_ids.size();
        for (std::uint64_t p = position; p < end; ++p)
            batch.sample_ids.push_back(slab->samples[slab->permutation[p - window.begin]]);
        for (std::size_t f = 0; f < out.size(); ++f) {
            const std::size_t bytes = index_->fields()[f].bytes_per_sample();
            std::byte* to = out[f].data() + first_row * bytes;
            for (std::uint64_t p = position; p < end; ++p, to += bytes)
                std::memcpy(to,
                            slab->fields[f].data() + slab->permutation[p - window.begin] * bytes,
                            bytes);
        }
        position = end;
    }
    return true;
}

void BatchStream::Impl::deliver(Batch batch, double seconds) {
    const std::scoped_lock lock(mutex_);
    assemble_s_ += seconds;
    ready_.push_back(std::move(batch));
    changed_.notify_all();
}

Batch BatchStream::Impl::next() {
    const double since = now_s();
    std::erase_if(lent_, [](const auto& lease) { return lease.expired(); });
    expect(lent_.size() < batch_buffers, "batches are given back before more are asked for");
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !ready_.empty() || error_; });
    wait_s_ += now_s() - since;
    if (ready_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    lent_.emplace_back(batch.lease);
    return batch;
}

StreamStats BatchStream::Impl::stats() const {
    StreamStats stats = windows_.stats();
    const std::scoped_lock lock(mutex_);
    stats.assemble_s = assemble_s_;
    stats.wait_s = wait_s_;
    stats.io_threads = threads_at_first(options_);
    return stats;
}

void BatchStream::Impl::stop() {
    windows_.stop();
    buffers_->stop();
    for (std::thread& thread : threads_)
        if (thread.joinable()) thread.join();
}

BatchStream::BatchStream(std::shared_ptr<const DatasetIndex> index,
                         const StreamOptions& options,
                         StreamPosition start) {
    check_options(options);
    expect(index != nullptr, "a stream has a data set");
    start = normalized(start, index->samples());
    const Sizes sizes = size_stream(*index, options, start);
    impl_ = std::make_unique<Impl>(std::move(index), options, start, sizes);
}

BatchStream::~BatchStream() = default;
BatchStream::BatchStream(BatchStream&&) noexcept = default;

Batch BatchStream::next() {
    return impl_->next();
}

StreamStats BatchStream::stats() const {
    return impl_->stats();
}

std::uint64_t BatchStream::memory_bytes() const {
    return impl_->memory_bytes();
}

}  // namespace lockstep
