// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/resident.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/pages.hpp"

#include "block_reader.hpp"
#include "memory.hpp"
#include "request_plan.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include <fmt/format.h>
#include <sys/mman.h>

namespace lockstep {
namespace {

/// What a block's state says once its bytes are settled; anything else: not yet. Words that memory
/// does not hold by chance.
constexpr std::uint32_t block_loaded = 0x4C6F6164, block_masked = 0x4D61736B;

// Where decoded rows and the states of blocks go, by field.
struct LoadTarget {
    std::shared_ptr<const DatasetIndex> index;
    const std::vector<std::span<std::byte>>& fields;
    const std::vector<std::span<std::uint32_t>>& states;
};

/// The threads of one load().
class Loader {
  public:
    Loader(const LoadTarget& target, const LoadOptions& options)
        : target_(target),
          options_(options),
          files_(target.index),
          blocks_(blocks_of_part(*target.index, options.part, options.parts)) {
        for (const FieldBlock& block : blocks_) total_ += block.bytes;
        divide();
    }

    StreamStats run() {
        for (const FieldBlock& block : blocks_) state_of(block).store(0);
        if (options_.report) options_.report(0, total_);
        std::vector<std::jthread> threads;
        const auto useful = std::min<std::size_t>(
            static_cast<std::size_t>(std::max(options_.threads, 1)), shares_.size());
        for (std::size_t i = 1; i < useful; ++i) threads.emplace_back([this] { work(); });
        work();
        threads.clear();
        if (error_) std::rethrow_exception(error_);
        return stats_;
    }

  private:
    const StoredBlock& stored(const FieldBlock& at) const {
        return target_.index->stored_blocks(at.field)[at.block];
    }

    // A thread takes all tiles of a band: they write to the same cache lines.
    void divide() {
        for (std::size_t i = 0; i < blocks_.size(); ++i)
            if (i == 0 || stored(blocks_[i]).tile == 0) shares_.push_back(i);
    }

    std::span<const FieldBlock> share(std::size_t number) const {
        const std::size_t end = number + 1 < shares_.size() ? shares_[number + 1] : blocks_.size();
        return std::span(blocks_).subspan(shares_[number], end - shares_[number]);
    }

    void work() {
        try {
            BlockReader reader(files_);
            RequestPlan plan(*target_.index);
            for (std::size_t i = next_++; i < shares_.size(); i = next_++)
                load(reader, plan, share(i));
        } catch (...) {
            next_ = shares_.size();
            const std::scoped_lock lock(mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }

    // What is masked stays as it is: nobody is given it.
    void load(BlockReader& reader, RequestPlan& plan, std::span<const FieldBlock> blocks) {
        plan.clear();
        for (const FieldBlock& at : blocks) {
            const std::size_t row_bytes = target_.index->fields()[at.field].bytes_per_sample();
            plan.add_block(at.field,
                           at.block,
                           target_.fields[at.field].subspan(stored(at).first_row * row_bytes,
                                                            stored(at).rows * row_bytes));
        }
        plan.arrange();
        OnBadBlock on_bad;
        if (options_.on_bad_data == BadData::mask)
            on_bad = [this](const BlockPiece& piece, const Error& error) {
                bad_blocks_.add(piece, error);
                state_of({piece.field, piece.block}).store(block_masked);
            };
        for (const ReadRequest& request : plan.requests()) reader.read(plan, request, on_bad);
        settle(blocks, reader.take_stats());
    }

    void settle(std::span<const FieldBlock> blocks, const StreamStats& spent) {
        const std::scoped_lock lock(mutex_);
        stats_ += spent;
        for (const FieldBlock& block : blocks) {
            std::uint32_t unsettled = 0;
            state_of(block).compare_exchange_strong(unsettled, block_loaded);
            done_ += block.bytes;
        }
        if (options_.report) options_.report(done_, total_);
    }

    std::atomic_ref<std::uint32_t> state_of(const FieldBlock& at) const {
        return std::atomic_ref(target_.states[at.field][at.block]);
    }

    const LoadTarget& target_;
    const LoadOptions& options_;
    ShardFiles files_;
    BadBlocks bad_blocks_{files_};
    std::vector<FieldBlock> blocks_;
    std::vector<std::size_t> shares_;  // where each begins in blocks_
    std::uint64_t total_ = 0;
    std::atomic<std::size_t> next_ = 0;

    std::mutex mutex_;
    std::uint64_t done_ = 0;
    StreamStats stats_;
    std::exception_ptr error_;
};

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

// Returns the memory for data; the rest is for everything else on the node.
constexpr std::uint64_t usable(std::uint64_t free_bytes) {
    return free_bytes - free_bytes / 10;
}

// Why not, or "" if it does.
std::string why_it_does_not_fit(const MemoryFacts& facts) {
    const std::uint64_t needed_bytes = facts.bytes_needed + facts.loading_bytes;
    const std::string needed =
        fmt::format("keeping all rows in memory takes {} a node, and {} while they are loaded",
                    bytes_text(facts.bytes_needed),
                    bytes_text(facts.loading_bytes));
    if (facts.samples > std::uint64_t{1} << 32)
        return fmt::format("{} samples are too many to keep in memory", grouped(facts.samples));
    if (needed_bytes > facts.budget_bytes)
        return fmt::format("{}; {} are allowed", needed, bytes_text(facts.budget_bytes));
    if (needed_bytes > usable(facts.free_bytes))
        return fmt::format("{}; {} of {} free may be used",
                           needed,
                           bytes_text(usable(facts.free_bytes)),
                           bytes_text(facts.free_bytes));
    if (facts.bytes_needed > facts.shared_bytes)
        return fmt::format(
            "{}; there is room for {} of shared memory", needed, bytes_text(facts.shared_bytes));
    return "";
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
    check(index_->samples() <= most_resident_samples, [&] {
        return Error(
            "E227",
            fmt::format("{} samples are too many to keep in memory", grouped(index_->samples())),
            fmt::format("{} is the limit", grouped(most_resident_samples)),
            "stream them: --data-mode stream --order lanes");
    });
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
    return Loader({index_, fields_, states_}, options).run();
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
    std::string why = why_it_does_not_fit(facts);
    if (!why.empty()) return {DataMode::stream, std::move(why)};
    return {DataMode::resident,
            fmt::format("all rows take {} a node, within the {} allowed and the {} free",
                        bytes_text(facts.bytes_needed),
                        bytes_text(facts.budget_bytes),
                        bytes_text(facts.free_bytes))};
}

void check_resident(const MemoryFacts& facts) {
    const std::string why = why_it_does_not_fit(facts);
    check(why.empty(), [&] {
        return Error("E227",
                     "the data set does not fit in memory",
                     why,
                     "give a larger --data-memory, or stream them: --data-mode auto and, in a new "
                     "run, --order lanes");
    });
}

}  // namespace lockstep
