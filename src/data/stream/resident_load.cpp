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
    return block.rows * index.fields()[field].bytes_per_sample();
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
    }

    StreamStats run() {
        for (const FieldBlock& block : blocks_) set_state(block, 0);
        if (options_.report) options_.report(0, total_);
        std::vector<std::jthread> threads;
        const auto useful = std::min<std::size_t>(
            static_cast<std::size_t>(std::max(options_.threads, 1)), blocks_.size());
        for (std::size_t i = 1; i < useful; ++i) threads.emplace_back([this] { work(); });
        work();
        threads.clear();
        if (error_) std::rethrow_exception(error_);
        return stats_;
    }

  private:
    void work() {
        try {
            BlockReader reader(files_);
            for (std::size_t i = next_++; i < blocks_.size(); i = next_++) {
                load(reader, blocks_[i]);
                count(blocks_[i], reader.take_stats());
            }
        } catch (...) {
            next_ = blocks_.size();
            const std::scoped_lock lock(mutex_);
            if (!error_) error_ = std::current_exception();
        }
    }

    void load(BlockReader& reader, const FieldBlock& at) {
        const StoredBlock& block = target_.index->stored_blocks(at.field)[at.block];
        const std::size_t row_bytes = target_.index->fields()[at.field].bytes_per_sample();
        const std::span<std::byte> place =
            target_.fields[at.field].subspan(block.first_row * row_bytes, at.bytes);
        try {
            reader.read_rows(at.field, block.first_row, block.rows, place);
            set_state(at, block_loaded);
        } catch (const Error& error) {
            if (options_.on_bad_data == BadData::fail || !is_about_data(error)) throw;
            bad_blocks_.add({at.field, at.block, 0, place}, error);
            std::ranges::fill(place, std::byte{0});
            set_state(at, block_masked);
        }
    }

    void set_state(const FieldBlock& at, std::uint32_t state) {
        std::atomic_ref(target_.states[at.field][at.block]).store(state);
    }

    void count(const FieldBlock& block, const StreamStats& spent) {
        const std::scoped_lock lock(mutex_);
        stats_ += spent;
        done_ += block.bytes;
        if (options_.report) options_.report(done_, total_);
    }

    const LoadTarget& target_;
    const LoadOptions& options_;
    ShardFiles files_;
    BadBlocks bad_blocks_{files_};
    std::vector<FieldBlock> blocks_;
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
