// SPDX-License-Identifier: Apache-2.0
// Moves data from files to the caller's batch, by threads that only pools connect:
//
//     I/O threads --- WindowPool ---> assembler --- ready_ ---> next()      the caller's thread
//          ^          (slabs)             ^                       |
//          +--- slab free again           +--- buffer free again -+ when the Batch dies
//
// A thread waits while its pool is empty; so nothing runs further ahead than memory_bytes, and no
// rate is configured. Only the number of I/O threads may change while it runs (ThreadGrowth): one
// more while the caller waits for busy threads.
//
// What must never happen:
// - What is in a batch depends on threads, memory or time: those decide when it is ready, nothing
//   else.
// - An error overtakes the batches that were assembled before it: next() gives those first.
// - A thread outlives what it uses: stop() wakes and joins all, also where the constructor fails in
//   the middle. Batches may outlive the stream: they share the buffers, which the stream's end does
//   not take away.
// - A caller that keeps too many batches waits for ever for the next: that is a bug, and said.
//
// Tested: data/stream/batch_stream_test.cpp, stream_service_test.cpp (threads, memory limits),
// resident_test.cpp (the same batches from memory).

#include "lockstep/data/batch_stream.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "assembler.hpp"
#include "batch_buffers.hpp"
#include "batch_source.hpp"
#include "read_plan.hpp"
#include "shard_files.hpp"
#include "stream_memory.hpp"
#include "team/ordered_work.hpp"
#include "thread_growth.hpp"
#include "window_pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

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

void fill_leaves(const Step& step, const StreamOptions& options, std::vector<LeafRows>& leaves) {
    leaves.clear();
    const std::uint64_t origin =
        leaf_begin(step.samples, options.first_leaf, options.virtual_ranks);
    for (int leaf = options.first_leaf; leaf < options.last_leaf; ++leaf) {
        const std::uint64_t begin = leaf_begin(step.samples, leaf, options.virtual_ranks);
        const std::uint64_t end = leaf_begin(step.samples, leaf + 1, options.virtual_ranks);
        leaves.push_back({leaf, begin - origin, end - begin});
    }
}

class WindowSource : public BatchSource {
  public:
    WindowSource(std::shared_ptr<const DatasetIndex> index,
                 const StreamOptions& options,
                 StreamPosition start,
                 const StreamMemory& memory);
    ~WindowSource() override { stop(); }

    Batch next() override;
    StreamStats stats() const override;
    std::uint64_t memory_bytes() const override { return memory_.bytes(); }
    std::string memory_text() const override { return memory_.text(); }

  private:
    void start_threads();
    void add_io_thread();
    void run_guarded(void (WindowSource::*work)());
    void load_windows() { windows_.load_windows(); }
    void assemble_batches();
    bool assemble(Assembler& assembler, const Step& step);
    void deliver(Batch batch, Assembler& assembler);
    Batch wait_for_batch();
    void adapt();
    void stop();

    std::shared_ptr<const DatasetIndex> index_;
    StreamOptions options_;
    StreamPosition start_;
    StreamMemory memory_;
    ShardFiles files_;
    WindowPool windows_;
    std::shared_ptr<BatchBuffers> buffers_;

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Batch> ready_;
    std::exception_ptr error_;
    double assemble_s_ = 0, wait_s_ = 0;
    std::uint64_t masked_samples_ = 0;

    ThreadGrowth growth_;  // the consumer's
    bool is_settled_;
    std::atomic<int> io_threads_ = 0;
    std::vector<std::thread> threads_;
};

WindowSource::WindowSource(std::shared_ptr<const DatasetIndex> index,
                           const StreamOptions& options,
                           StreamPosition start,
                           const StreamMemory& memory)
    : index_(std::move(index)),
      options_(options),
      start_(start),
      memory_(memory),
      files_(index_,
             options.order == OrderKind::sequential ? Access::sequential : Access::scattered),
      windows_(files_, options, start, memory),
      buffers_(std::make_shared<BatchBuffers>(
          *index_, memory.batches, memory.batch_rows, options.page_lock)),
      growth_(memory.readers),
      is_settled_(options.io_threads > 0) {
    try {
        start_threads();
    } catch (...) {
        stop();
        throw;
    }
}

void WindowSource::start_threads() {
    for (int i = 0; i < std::max(options_.io_threads, 1); ++i) add_io_thread();
    threads_.emplace_back([this] { run_guarded(&WindowSource::assemble_batches); });
}

void WindowSource::add_io_thread() {
    threads_.emplace_back([this] { run_guarded(&WindowSource::load_windows); });
    ++io_threads_;
}

void WindowSource::run_guarded(void (WindowSource::*work)()) {
    work_in_background();
    try {
        (this->*work)();
    } catch (...) {
        const std::scoped_lock lock(mutex_);
        if (!error_) error_ = std::current_exception();
        changed_.notify_all();
    }
}

void WindowSource::assemble_batches() {
    StepWalk walk(index_->blocks(), options_, start_);
    Assembler assembler(*index_, windows_);
    for (;;) {
        const Step step = walk.next();
        if (!assemble(assembler, step)) return;
        windows_.release_ended(step);
    }
}

bool WindowSource::assemble(Assembler& assembler, const Step& step) {
    BatchBuffers::Lent buffer = buffers_->take();
    if (!buffer.lease) return false;
    if (!assembler.assemble(step, *buffer.room)) return false;
    deliver(make_batch(step, options_, *index_, std::move(buffer)), assembler);
    return true;
}

void WindowSource::deliver(Batch batch, Assembler& assembler) {
    const std::scoped_lock lock(mutex_);
    assemble_s_ += assembler.take_seconds();
    masked_samples_ = assembler.masked_samples();
    ready_.push_back(std::move(batch));
    changed_.notify_one();
}

Batch WindowSource::next() {
    Batch batch = wait_for_batch();
    if (options_.io_threads == 0) adapt();
    return batch;
}

Batch WindowSource::wait_for_batch() {
    std::unique_lock lock(mutex_);
    if (ready_.empty() && !error_) {
        const double since = now_s();
        changed_.wait(lock, [&] { return !ready_.empty() || error_; });
        wait_s_ += now_s() - since;
    }
    if (ready_.empty()) std::rethrow_exception(error_);
    Batch batch = std::move(ready_.front());
    ready_.pop_front();
    return batch;
}

void WindowSource::adapt() {
    const double now = now_s();
    if (!growth_.is_due(now)) return;
    const ThreadGrowth::Advice advice = growth_.look(now, stats());
    if (advice == ThreadGrowth::Advice::add) {
        try {
            add_io_thread();
        } catch (const std::system_error&) {
            growth_ = ThreadGrowth(io_threads_);  // the system has no more
        }
    }
    if (advice != ThreadGrowth::Advice::keep || is_settled_) return;
    is_settled_ = true;
    once(Level::info,
         "I/O threads: {} of at most {}; the last {:.1f} s waited {:.1f} % for data",
         io_threads_.load(),
         memory_.readers,
         ThreadGrowth::interval_s,
         100 * growth_.waited_share());
}

StreamStats WindowSource::stats() const {
    StreamStats stats = windows_.stats();
    const std::scoped_lock lock(mutex_);
    stats.assemble_s = assemble_s_;
    stats.wait_s = wait_s_;
    stats.masked_samples = masked_samples_;
    stats.io_threads = io_threads_;
    return stats;
}

void WindowSource::stop() {
    windows_.stop();
    buffers_->stop();
    for (std::thread& thread : threads_)
        if (thread.joinable()) thread.join();
}

}  // namespace

Batch make_batch(const Step& step,
                 const StreamOptions& options,
                 const DatasetIndex& index,
                 BatchBuffers::Lent lent) {
    BatchRoom& room = *lent.room;
    fill_leaves(step, options, room.leaves);
    room.fields.clear();
    for (std::size_t f = 0; f < room.places.size(); ++f)
        room.fields.push_back(
            room.places[f].first(room.sample_ids.size() * index.fields()[f].bytes_per_sample()));
    return {.position = step.position,
            .next = step.next,
            .samples_in_step = static_cast<std::int64_t>(step.samples),
            .leaves = room.leaves,
            .sample_ids = room.sample_ids,
            .valid = room.valid,
            .fields = room.fields,
            .lease = std::move(lent.lease)};
}

BatchStream::BatchStream(std::shared_ptr<const DatasetIndex> index,
                         const StreamOptions& options,
                         StreamPosition start,
                         std::shared_ptr<const ResidentRows> resident) {
    check_options(options);
    expect(index != nullptr, "a stream has a data set");
    start = normalized(start, options, samples_in(index->blocks(), options.part));
    if (resident) {
        source_ = make_resident_source(std::move(index), std::move(resident), options, start);
        return;
    }
    const StreamMemory memory = plan_memory(*index, options, start);
    source_ = std::make_unique<WindowSource>(std::move(index), options, start, memory);
}

BatchStream::~BatchStream() = default;
BatchStream::BatchStream(BatchStream&&) noexcept = default;

Batch BatchStream::next() {
    static_assert(std::tuple_size_v<decltype(lent_)> == lendable_batches);
    const auto room = [&] {
        return std::ranges::find_if(lent_, [](const auto& lease) { return lease.expired(); });
    };
    expect(room() != lent_.end(), "batches are given back before more are asked for");
    Batch batch = source_->next();
    *room() = batch.lease;
    return batch;
}

StreamStats BatchStream::stats() const {
    return source_->stats();
}

std::uint64_t BatchStream::memory_bytes() const {
    return source_->memory_bytes();
}

std::string BatchStream::memory_text() const {
    return source_->memory_text();
}

}  // namespace lockstep
