// SPDX-License-Identifier: Apache-2.0
// All rows in memory, and the same batches as from files, gathered from them. There is no I/O to
// hide, only copying, so a few threads gather whole steps side by side:
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

#include "lockstep/data/resident.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/pages.hpp"

#include "batch_source.hpp"
#include "block_reader.hpp"
#include "memory.hpp"
#include "ordered_work.hpp"
#include "read_plan.hpp"
#include "request_plan.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>

namespace lockstep {
namespace {

/// What a block's state says once its bytes are settled; anything else: not yet. Words that memory
/// does not hold by chance.
constexpr std::uint32_t block_loaded = 0x4C6F6164, block_masked = 0x4D61736B;

using Band = std::span<const FieldBlock>;

// A thread takes all tiles of a band: they write to the same cache lines.
std::vector<Band> bands_of(const std::vector<FieldBlock>& blocks, const DatasetIndex& index) {
    std::vector<Band> bands;
    for (auto begin = blocks.begin(); begin != blocks.end();) {
        const auto end = std::find_if(begin + 1, blocks.end(), [&](const FieldBlock& at) {
            return index.stored_blocks(at.field)[at.block].tile == 0;
        });
        bands.emplace_back(begin, end);
        begin = end;
    }
    return bands;
}

constexpr std::uint64_t most_resident_samples = std::uint64_t{1} << 32;

std::uint64_t state_bytes(const DatasetIndex& index, std::size_t field) {
    return aligned(index.stored_blocks(field).size() * sizeof(std::uint32_t));
}

// Rows that lie in a few huge pages are found without walking page tables. The kernel may refuse,
// as it does for shared memory that is not set up for them: then pages are small.
void ask_for_huge_pages(std::span<std::byte> memory) {
    constexpr std::uintptr_t page = 4096;
    const auto begin = reinterpret_cast<std::uintptr_t>(memory.data());
    const std::uintptr_t first = (begin + page - 1) / page * page;
    const std::uintptr_t last = (begin + memory.size()) / page * page;
    if (first < last) ::madvise(memory.data() + (first - begin), last - first, MADV_HUGEPAGE);
}

std::string too_many_text(std::uint64_t samples) {
    return fmt::format("{} samples are too many to keep in memory", grouped(samples));
}

// Returns the memory for data; the rest is for everything else on the node.
constexpr std::uint64_t usable(std::uint64_t free_bytes) {
    return free_bytes - free_bytes / 10;
}

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

/// Gathers batches ahead of next(), whose caller helps instead of waiting.
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
        std::unique_lock claiming(walk_mutex_);
        const std::uint64_t number = steps_claimed_++;
        StepSamples step = walk_.next();
        claiming.unlock();
        Batch batch = assemble(std::move(step), std::move(buffer));
        deliver(number, std::move(batch), now_s() - since);
    }

    // The caller would only wait: it may as well gather a batch itself.
    bool help() override {
        BatchBuffers::Lent buffer = buffers_->take(BatchBuffers::Wait::no);
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
    check(needed <= options.memory_bytes,
          "E106",
          fmt::format("batches from memory need {} of buffers; {} are allowed",
                      bytes_text(needed),
                      bytes_text(options.memory_bytes)),
          fmt::format("{} for batches, the rest for order '{}'",
                      bytes_text(buffers),
                      order_name(options.order)),
          fmt::format("allow more: --data-memory {}MiB", (needed >> 20) + 1));
}

}  // namespace

std::uint64_t ResidentRows::bytes_needed(const DatasetIndex& index) {
    std::uint64_t bytes = row_memory(index, index.samples());
    for (std::size_t f = 0; f < index.fields().size(); ++f) bytes += state_bytes(index, f);
    return bytes;
}

std::uint64_t ResidentRows::loading_bytes(const DatasetIndex& index, int threads) {
    return static_cast<std::uint64_t>(std::max(threads, 1)) * BlockReader::buffer_bytes(index);
}

ResidentRows::ResidentRows(std::shared_ptr<const DatasetIndex> index,
                           std::span<std::byte> memory,
                           std::shared_ptr<void> keep)
    : index_(std::move(index)), keep_(std::move(keep)) {
    expect(memory.size() >= bytes_needed(*index_), "enough memory is lent for all rows");
    expect(reinterpret_cast<std::uintptr_t>(memory.data()) % buffer_alignment == 0,
           "lent memory is aligned");
    check(index_->samples() <= most_resident_samples,
          "E227",
          too_many_text(index_->samples()),
          fmt::format("{} is the limit", grouped(most_resident_samples)),
          "stream them: --data-mode stream --order lanes");
    ask_for_huge_pages(memory);
    fields_ = divided(*index_, index_->samples(), memory);
    memory = memory.subspan(row_memory(*index_, index_->samples()));
    for (std::size_t f = 0; f < fields_.size(); ++f) {
        states_.emplace_back(reinterpret_cast<std::uint32_t*>(memory.data()),
                             index_->stored_blocks(f).size());
        memory = memory.subspan(state_bytes(*index_, f));
    }
}

std::shared_ptr<ResidentRows> ResidentRows::in_own_memory(
    std::shared_ptr<const DatasetIndex> index) {
    auto memory = std::make_shared<Pages>(bytes_needed(*index));
    const std::span<std::byte> bytes = memory->bytes();
    return std::make_shared<ResidentRows>(std::move(index), bytes, std::move(memory));
}

StreamStats ResidentRows::load(const LoadOptions& options) {
    expect(options.part >= 0 && options.part < options.parts, "a part is one of the parts");
    const std::vector<FieldBlock> blocks = blocks_of_part(*index_, options.part, options.parts);
    const std::vector<Band> bands = bands_of(blocks, *index_);
    const auto state_of = [&](std::size_t field, std::size_t block) {
        return std::atomic_ref(states_[field][block]);
    };
    const auto place_of = [&](std::size_t field, std::size_t number) {
        const std::size_t row_bytes = index_->fields()[field].bytes_per_sample();
        const StoredBlock& block = index_->stored_blocks(field)[number];
        return fields_[field].subspan(block.first_row * row_bytes, block.rows * row_bytes);
    };
    std::uint64_t done = 0, total = 0;
    for (const FieldBlock& at : blocks) {
        state_of(at.field, at.block).store(0);
        total += at.bytes;
    }
    if (options.report) options.report(done, total);
    ShardFiles files(index_);
    BadBlocks bad_blocks(files);
    OnBadBlock on_bad;
    if (options.on_bad_data == BadData::mask)
        on_bad = [&](const BlockPiece& piece, const Error& error) {
            bad_blocks.add(piece, error);
            state_of(piece.field, piece.block).store(block_masked);
        };
    // Of one thread. What is masked stays as it is: nobody is given it.
    const auto make_loader = [&] {
        return [&, reader = BlockReader(files), plan = RequestPlan(*index_)](
                   std::uint64_t band, StreamStats& spent) mutable {
            plan.clear();
            for (const FieldBlock& at : bands[band])
                plan.add_block(at.field, at.block, place_of(at.field, at.block));
            plan.arrange();
            for (const ReadRequest& request : plan.requests()) reader.read(plan, request, on_bad);
            for (const FieldBlock& at : bands[band]) {
                std::uint32_t unsettled = 0;
                state_of(at.field, at.block).compare_exchange_strong(unsettled, block_loaded);
            }
            spent = reader.take_stats();
        };
    };
    std::vector<decltype(make_loader())> loaders;
    const auto useful = std::clamp<std::size_t>(bands.size(), 1, std::max(options.threads, 1));
    for (std::size_t i = 0; i < useful; ++i) loaders.push_back(make_loader());
    StreamStats stats;
    work_in_order<StreamStats>(bands.size(), loaders, [&](std::uint64_t band, const auto& spent) {
        stats += spent;
        for (const FieldBlock& block : bands[band]) done += block.bytes;
        if (options.report) options.report(done, total);
    });
    return stats;
}

void ResidentRows::seal() {
    std::vector<std::uint8_t> masked;
    for (std::size_t f = 0; f < states_.size(); ++f)
        for (std::size_t b = 0; b < states_[f].size(); ++b) {
            const std::uint32_t state = std::atomic_ref(states_[f][b]).load();
            expect(state == block_loaded || state == block_masked, "all parts were loaded");
            if (state == block_loaded) continue;
            masked.resize(index_->samples());
            const StoredBlock& block = index_->stored_blocks(f)[b];
            std::fill_n(masked.begin() + static_cast<std::ptrdiff_t>(block.first_row),
                        block.rows,
                        std::uint8_t{1});
        }
    masked_samples_ = static_cast<std::uint64_t>(std::ranges::count(masked, std::uint8_t{1}));
    is_masked_ = std::move(masked);
    is_sealed_ = true;
}

std::string_view data_mode_name(DataMode mode) {
    return mode == DataMode::resident ? "resident" : "stream";
}

ModeChoice choose_mode(const MemoryFacts& facts) {
    using enum DataMode;
    const std::uint64_t needed_bytes = facts.bytes_needed + facts.loading_bytes;
    const std::string needed =
        fmt::format("keeping all rows in memory takes {} a node, and {} while they are loaded",
                    bytes_text(facts.bytes_needed),
                    bytes_text(facts.loading_bytes));
    if (facts.samples > most_resident_samples) return {stream, too_many_text(facts.samples)};
    if (needed_bytes > facts.budget_bytes)
        return {stream, fmt::format("{}; {} are allowed", needed, bytes_text(facts.budget_bytes))};
    if (needed_bytes > usable(facts.free_bytes))
        return {stream,
                fmt::format("{}; {} of {} free may be used",
                            needed,
                            bytes_text(usable(facts.free_bytes)),
                            bytes_text(facts.free_bytes))};
    if (facts.bytes_needed > facts.shared_bytes)
        return {stream,
                fmt::format("{}; there is room for {} of shared memory",
                            needed,
                            bytes_text(facts.shared_bytes))};
    return {resident,
            fmt::format("all rows take {} a node, within the {} allowed and the {} free",
                        bytes_text(facts.bytes_needed),
                        bytes_text(facts.budget_bytes),
                        bytes_text(facts.free_bytes))};
}

void check_resident(const MemoryFacts& facts) {
    const ModeChoice choice = choose_mode(facts);
    check(choice.mode == DataMode::resident,
          "E227",
          "the data set does not fit in memory",
          choice.why,
          "give a larger --data-memory, or stream them: --data-mode auto and, in a new "
          "run, --order lanes");
}

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
