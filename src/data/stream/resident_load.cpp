// SPDX-License-Identifier: Apache-2.0
#include "resident_load.hpp"

#include "lockstep/core/error.hpp"

#include "bad_blocks.hpp"
#include "block_reader.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

std::uint64_t bytes_of(const DatasetIndex& index, std::size_t field, const StoredBlock& block) {
    return block.rows * index.row_bytes_of(field, block);
}

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

    // Masked samples stay unchanged, because nobody reads them.
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
    std::vector<std::size_t> shares_;  // begin of each in blocks_
    std::uint64_t total_ = 0;
    std::atomic<std::size_t> next_ = 0;

    std::mutex mutex_;
    std::uint64_t done_ = 0;
    StreamStats stats_;
    std::exception_ptr error_;
};

}  // namespace

std::vector<FieldBlock> blocks_of_part(const DatasetIndex& index, int part, int parts) {
    const auto wanted = static_cast<std::uint64_t>(part), of = static_cast<std::uint64_t>(parts);
    const std::uint64_t total = index.samples() * index.manifest().bytes_per_sample();
    std::vector<FieldBlock> blocks;
    std::uint64_t before = 0;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (std::size_t b = 0; b < index.stored_blocks(f).size(); ++b) {
            const std::uint64_t bytes = bytes_of(index, f, index.stored_blocks(f)[b]);
            if (before * of / total == wanted) blocks.push_back({f, b, bytes});
            before += bytes;
        }
    return blocks;
}

StreamStats load_blocks(const LoadTarget& target, const LoadOptions& options) {
    return Loader(target, options).run();
}

}  // namespace lockstep
