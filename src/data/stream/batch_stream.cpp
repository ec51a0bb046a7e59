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
// Tested: data/stream/batch_stream_test.cpp (least memory), stream_service_test.cpp (threads,
// memory limits), reading_test.cpp (gathering), resident_test.cpp (the same batches from memory).

#include "lockstep/data/batch_stream.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "batch_source.hpp"
#include "memory.hpp"
#include "ordered_work.hpp"
#include "read_plan.hpp"
#include "request_plan.hpp"
#include "window_pool.hpp"

#include <algorithm>
#include <system_error>
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
    check(options.io_threads >= 0 && options.io_threads <= 1024,
          "E102",
          fmt::format("{} I/O threads", options.io_threads),
          "1 to 1024 are possible, or 0 for as many as are needed");
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

// Turns slabs of windows into a batch: rows in the step's order, field by field.
//
//     slice of the step    lane 0 [4,8)  lane 1 [4,8)  ...      found_: (slab, first row, rows)
//     windows              (slab 3)      (not loaded yet)
//                           copied, its lane's old slab freed,  and only then waited for
//
// The rows of all parts are found first and then copied together, field after field: so rows of
// other lanes are on their way to the cache while one is copied. Only where a window is missing are
// the parts found so far copied at once. One thread.
//
// What must never happen: waiting while holding a slab that others need. The window that is waited
// for may be the one that waits for this slab.
class Assembler {
  public:
    Assembler(const DatasetIndex& index, WindowPool& windows)
        : index_(index), windows_(windows), lanes_(windows.lanes()) {}

    // Fills the rows, sample ids and valid rows of `room`. False after the pool was stopped.
    // Errors: those of loading.
    bool assemble(const Step& step, BatchRoom& room) {
        const double since = now_s();
        waited_s_ = 0;
        room_ = &room;
        copied_ = 0;
        found_.clear();
        room.sample_ids.resize(step.rows);
        room.valid.clear();
        for (const LaneRange& part : step.slice)
            if (!find_part(step, part)) return false;
        copy_found();
        busy_s_ += now_s() - since - waited_s_;
        return true;
    }

    // Since the last call, without the waiting.
    double take_seconds() { return std::exchange(busy_s_, 0); }

  private:
    // Where a lane is. The slab's own window is another one as soon as it is freed.
    struct Current {
        const Slab* slab = nullptr;
        EpochWindow window;
    };
    // Rows of one window that lie side by side in the batch.
    struct Found {
        const Slab* slab;
        std::uint64_t first, rows;  // positions within the window
    };

    bool find_part(const Step& step, const LaneRange& part) {
        for (std::uint64_t position = part.begin; position < part.end;) {
            const Current* const current = window_at(step.position.epoch, part.lane, position);
            if (!current) return false;
            const LaneRange& range = current->window.range;
            const std::uint64_t end = std::min(part.end, range.end);
            found_.push_back({current->slab, position - range.begin, end - position});
            position = end;
        }
        return true;
    }

    const Current* window_at(std::uint64_t epoch, int lane, std::uint64_t position) {
        Current& current = lanes_[static_cast<std::size_t>(lane)];
        if (current.window.holds(epoch, position)) return &current;
        const Slab* slab = windows_.find(epoch, lane, position);
        if (slab) {
            left_.push_back(lane);
        } else {
            // What is waited for may need the slab of a window that was left: so that is copied
            // first.
            copy_found();
            const double since = now_s();
            slab = windows_.acquire(epoch, lane, position);
            waited_s_ += now_s() - since;
        }
        if (!slab) return nullptr;
        current = {slab, slab->window};
        return &current;
    }

    void copy_found() {
        for (std::size_t f = 0; f < room_->places.size(); ++f) copy_field(f);
        for (const Found& found : found_) {
            std::copy_n(found.slab->samples.begin() + static_cast<std::ptrdiff_t>(found.first),
                        found.rows,
                        room_->sample_ids.begin() + static_cast<std::ptrdiff_t>(copied_));
            if (!found.slab->valid.empty()) copy_valid(found, copied_);
            copied_ += found.rows;
        }
        found_.clear();
        for (const int lane : left_) {
            const EpochWindow& window = lanes_[static_cast<std::size_t>(lane)].window;
            windows_.leave(window.order->epoch(), lane, window.range.begin);
        }
        left_.clear();
    }

    void copy_field(std::size_t field) {
        const std::size_t bytes = index_.fields()[field].bytes_per_sample();
        rows_.clear();
        for (const Found& found : found_) {
            const std::byte* const base = found.slab->fields[field].data();
            for (std::uint64_t i = 0; i < found.rows; ++i)
                rows_.push_back(base + found.slab->permutation[found.first + i] * bytes);
        }
        gather_rows(rows_, bytes, room_->places[field].data() + copied_ * bytes);
    }

    void copy_valid(const Found& found, std::size_t row) {
        const auto valid = std::span(found.slab->valid).subspan(found.first, found.rows);
        if (std::ranges::count(valid, 0) == 0) return;
        room_->valid.resize(room_->sample_ids.size(), 1);
        std::ranges::copy(valid, room_->valid.begin() + static_cast<std::ptrdiff_t>(row));
    }

    const DatasetIndex& index_;
    WindowPool& windows_;
    std::vector<Current> lanes_;
    std::vector<Found> found_;
    std::vector<int> left_;               // lanes that went on to another window without waiting
    std::vector<const std::byte*> rows_;  // of one field
    BatchRoom* room_ = nullptr;           // at hand
    std::size_t copied_ = 0;              // rows of it
    double busy_s_ = 0, waited_s_ = 0;
};

class WindowSource : public BatchSource {
  public:
    WindowSource(std::shared_ptr<const DatasetIndex> index,
                 const StreamOptions& options,
                 StreamPosition start,
                 const StreamMemory& memory)
        : BatchSource(std::move(index), options, memory.batches, memory.batch_rows),
          start_(start),
          memory_(memory),
          files_(index_,
                 options.order == OrderKind::sequential ? Access::sequential : Access::scattered),
          windows_(files_, options, start, memory),
          growth_(memory.readers),
          is_settled_(options.io_threads > 0) {
        try {
            for (int i = 0; i < std::max(options_.io_threads, 1); ++i) add_io_thread();
            add_thread([this] { assemble_batches(); });
        } catch (...) {
            stop_all();
            throw;
        }
    }

    ~WindowSource() override { stop_all(); }

    StreamStats stats() const override {
        StreamStats stats = BatchSource::stats();
        stats += windows_.stats();
        stats.io_threads = io_threads_;
        return stats;
    }

    std::uint64_t memory_bytes() const override { return memory_.bytes(); }
    std::string memory_text() const override { return memory_.text(); }

  private:
    void add_io_thread() {
        add_thread([this] { windows_.load_windows(); });
        ++io_threads_;
    }

    void assemble_batches() {
        StepWalk walk(index_->blocks(), options_, start_);
        Assembler assembler(*index_, windows_);
        for (std::uint64_t number = 0;; ++number) {
            const Step step = walk.next();
            BatchBuffers::Lent buffer = buffers_->take();
            if (!buffer.lease || !assembler.assemble(step, *buffer.room)) return;
            deliver(number, make_batch(step, std::move(buffer)), assembler.take_seconds());
            windows_.release_ended(step);
        }
    }

    void adapt(double) override {
        const double now = now_s();
        if (options_.io_threads > 0 || !growth_.is_due(now)) return;
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
             io_threads_,
             memory_.readers,
             ThreadGrowth::interval_s,
             100 * growth_.waited_share());
    }

    void stop_all() {
        windows_.stop();
        stop();
    }

    StreamPosition start_;
    StreamMemory memory_;
    ShardFiles files_;
    WindowPool windows_;

    ThreadGrowth growth_;  // the consumer's
    bool is_settled_;
    int io_threads_ = 0;  // likewise
};

}  // namespace

BatchSource::BatchSource(std::shared_ptr<const DatasetIndex> index,
                         const StreamOptions& options,
                         std::size_t buffers,
                         std::uint64_t rows)
    : index_(std::move(index)),
      options_(options),
      buffers_(std::make_shared<BatchBuffers>(*index_, buffers, rows, options.page_lock)) {}

Batch BatchSource::make_batch(const Step& step, BatchBuffers::Lent lent) const {
    BatchRoom& room = *lent.room;
    fill_leaves(step, options_, room.leaves);
    room.fields.clear();
    for (std::size_t f = 0; f < room.places.size(); ++f)
        room.fields.push_back(
            room.places[f].first(room.sample_ids.size() * index_->fields()[f].bytes_per_sample()));
    return {.position = step.position,
            .next = step.next,
            .samples_in_step = static_cast<std::int64_t>(step.samples),
            .leaves = room.leaves,
            .sample_ids = room.sample_ids,
            .valid = room.valid,
            .fields = room.fields,
            .lease = std::move(lent.lease)};
}

void BatchSource::deliver(std::uint64_t number, Batch batch, double seconds) {
    const std::scoped_lock lock(mutex_);
    stats_.assemble_s += seconds;
    stats_.masked_samples += static_cast<std::uint64_t>(std::ranges::count(batch.valid, 0));
    ready_.emplace(number, std::move(batch));
    changed_.notify_all();
}

Batch BatchSource::next() {
    const double since = now_s();
    std::unique_lock lock(mutex_);
    const auto is_ready = [&] { return ready_.contains(steps_given_) || error_; };
    if (!is_ready()) {
        while (!is_ready()) {
            lock.unlock();
            const bool has_helped = help();
            lock.lock();
            if (!has_helped) changed_.wait(lock, is_ready);
        }
        stats_.wait_s += now_s() - since;
    }
    auto step = ready_.extract(steps_given_);
    if (!step) std::rethrow_exception(error_);
    lock.unlock();
    ++steps_given_;
    adapt(now_s() - since);
    return std::move(step.mapped());
}

StreamStats BatchSource::stats() const {
    const std::scoped_lock lock(mutex_);
    return stats_;
}

void BatchSource::stop() {
    buffers_->stop();
    for (std::thread& thread : threads_)
        if (thread.joinable()) thread.join();
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
