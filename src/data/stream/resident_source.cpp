// SPDX-License-Identifier: Apache-2.0
// Makes the same batches as from files, gathered from rows in memory. There is no I/O to hide, only
// copying, so a few threads gather whole steps side by side:
//
//     thread 1    takes a buffer, claims step 7, gathers --.
//     thread 2    takes a buffer, claims step 8, gathers ---> ready_ {8, 9} ---> next() wants 7
//     caller      would wait: takes a buffer, too, and claims step 9
//
// What must never happen:
// - Nobody gathers the step that is waited for. A thread takes its buffer before it claims a step;
//   so every claimed step has one, and with a buffer for each thread beside those the caller may
//   hold, somebody always comes to it.
// - Steps are handed out by who is ready first: by number, in order.
// - A batch differs from that of a stream from files by one bit; a checkpoint may be resumed either
//   way.
//
// Tested: data/stream/resident_test.cpp.

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/resident.hpp"

#include "batch_source.hpp"
#include "memory.hpp"
#include "ordered_work.hpp"
#include "read_plan.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// More threads do not make memory faster. On a single core there is none: the caller gathers by
// itself.
constexpr int most_assemblers = 4;
// Steps between checks whether another assembler would help.
constexpr std::uint64_t steps_of_a_look = 64;

int assemblers_at_most(const StreamOptions& options) {
    if (options.io_threads > 0) return std::min(options.io_threads, most_assemblers);
    return std::clamp(std::min(usable_cores() - 1, options.most_io_threads), 0, most_assemblers);
}

// One more than the consumer holds for each thread that assembles, and for the caller if none does.
std::size_t buffers_for(int assemblers) {
    return lendable_batches - 1 + static_cast<std::size_t>(std::max(assemblers, 1));
}

/// Gathers batches ahead of next(), whose caller helps instead of waiting. Whoever assembles takes
/// a buffer, then the next step: so the step that is waited for has a buffer, however many batches
/// are held.
class ResidentSource : public BatchSource {
  public:
    ResidentSource(const std::shared_ptr<const DatasetIndex>& index,
                   std::shared_ptr<const ResidentRows> rows,
                   const StreamOptions& options,
                   StreamPosition start)
        : BatchSource(index,
                      options,
                      buffers_for(assemblers_at_most(options)),
                      most_rows(options, index->samples())),
          rows_(std::move(rows)),
          most_threads_(assemblers_at_most(options)),
          walk_bytes_(SampleWalk::memory_bytes(index_->blocks(), options)),
          walk_(index_->blocks(), options, start) {
        try {
            for (int i = 0; i < std::min(std::max(options.io_threads, 1), most_threads_); ++i)
                add_assembler();
        } catch (...) {
            stop();
            throw;
        }
    }

    ~ResidentSource() override { stop(); }

    StreamStats stats() const override {
        StreamStats stats = BatchSource::stats();
        stats.io_threads = static_cast<int>(threads_.size());
        return stats;
    }

    std::uint64_t memory_bytes() const override { return buffers_->memory_bytes() + walk_bytes_; }

    std::string memory_text() const override {
        return fmt::format(
            "from memory: all rows in {}, shared by the ranks of a node; {} of batches{}, {} "
            "for order '{}'",
            bytes_text(ResidentRows::bytes_needed(*index_)),
            bytes_text(buffers_->memory_bytes()),
            options_.page_lock ? " (page-locked)" : "",
            bytes_text(walk_bytes_),
            order_name(options_.order));
    }

  private:
    std::pair<std::uint64_t, StepSamples> claim_step() {
        const std::scoped_lock lock(walk_mutex_);
        const std::uint64_t number = steps_claimed_++;
        return {number, walk_.next()};
    }

    void add_assembler() {
        add_thread([this] {
            for (;;) {
                BatchBuffers::Lent buffer = buffers_->take();
                if (!buffer.lease) return;
                assemble_next(std::move(buffer));
            }
        });
    }

    void assemble_next(BatchBuffers::Lent buffer) {
        const double since = now_s();
        auto [number, step] = claim_step();
        Batch batch = assemble(std::move(step), std::move(buffer));
        deliver(number, std::move(batch), now_s() - since);
    }

    // The caller would only wait: it may as well gather a batch itself.
    bool help() override {
        BatchBuffers::Lent buffer = buffers_->try_take();
        if (!buffer.lease) return false;
        run_guarded([&] { assemble_next(std::move(buffer)); });
        return true;
    }

    void adapt(double waited_s) override {
        waited_since_s_ += waited_s;
        if (options_.io_threads > 0 || steps_given_ % steps_of_a_look != 0) return;
        const double now = now_s();
        const bool is_late = waited_since_s_ > 0.01 * (now - looked_at_s_);
        looked_at_s_ = now;
        waited_since_s_ = 0;
        if (is_late && static_cast<int>(threads_.size()) < most_threads_) add_assembler();
    }

    Batch assemble(StepSamples step, BatchBuffers::Lent buffer) const {
        BatchRoom& room = *buffer.room;
        room.sample_ids.swap(step.ids);
        room.valid.clear();
        std::vector<const std::byte*> places(room.sample_ids.size());
        for (std::size_t f = 0; f < room.places.size(); ++f) {
            const std::size_t row_bytes = index_->fields()[f].bytes_per_sample();
            const std::byte* const rows = rows_->rows(f).data();
            std::ranges::transform(room.sample_ids, places.begin(), [&](std::uint64_t sample) {
                return rows + sample * row_bytes;
            });
            gather_rows(places, row_bytes, room.places[f].data());
        }
        if (rows_->masked_samples() > 0) mask(room);
        return make_batch(step.step, std::move(buffer));
    }

    void mask(BatchRoom& room) const {
        for (std::size_t row = 0; row < room.sample_ids.size(); ++row) {
            if (!rows_->is_masked(room.sample_ids[row])) continue;
            room.valid.resize(room.sample_ids.size(), 1);
            room.valid[row] = 0;
            for (std::size_t f = 0; f < room.places.size(); ++f) {
                const std::size_t row_bytes = index_->fields()[f].bytes_per_sample();
                std::memset(room.places[f].data() + row * row_bytes, 0, row_bytes);
            }
        }
    }

    const std::shared_ptr<const ResidentRows> rows_;
    const int most_threads_;
    const std::uint64_t walk_bytes_;

    std::mutex walk_mutex_;
    SampleWalk walk_;
    std::uint64_t steps_claimed_ = 0;

    double looked_at_s_ = now_s(), waited_since_s_ = 0;  // the caller's
};

void check_memory(const DatasetIndex& index, const StreamOptions& options) {
    const std::uint64_t buffers = buffers_for(assemblers_at_most(options)) *
                                  row_memory(index, most_rows(options, index.samples()));
    const std::uint64_t needed = buffers + SampleWalk::memory_bytes(index.blocks(), options);
    check(needed <= options.memory_bytes, [&] {
        return Error("E106",
                     fmt::format("batches from memory need {} of buffers; {} are allowed",
                                 bytes_text(needed),
                                 bytes_text(options.memory_bytes)),
                     fmt::format("{} for batches, the rest for order '{}'",
                                 bytes_text(buffers),
                                 order_name(options.order)),
                     fmt::format("allow more: --data-memory {}MiB", (needed >> 20) + 1));
    });
}

}  // namespace

std::unique_ptr<BatchSource> make_resident_source(std::shared_ptr<const DatasetIndex> index,
                                                  std::shared_ptr<const ResidentRows> rows,
                                                  const StreamOptions& options,
                                                  StreamPosition start) {
    expect(rows->is_sealed(), "resident rows are sealed before batches are asked for");
    expect(rows->index().digest() == index->digest() && rows->index().samples() == index->samples(),
           "resident rows are those of the data set");
    check_memory(*index, options);
    return std::make_unique<ResidentSource>(index, std::move(rows), options, start);
}

}  // namespace lockstep
