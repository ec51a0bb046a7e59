// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/data/reshard.hpp"

#include "block_cache.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

namespace lockstep {
namespace {

class PackedSource : public RowSource {
  public:
    PackedSource(std::shared_ptr<const DatasetIndex> index, std::size_t cached_blocks)
        : files_(index), index_(std::move(index)) {
        for (std::size_t f = 0; f < fields().size(); ++f)
            caches_.push_back(std::make_unique<BlockCache>(cached_blocks));
    }

    std::uint64_t samples() const override { return index_->samples(); }
    const std::vector<Field>& fields() const override { return index_->fields(); }
    std::string row_order() const override { return index_->manifest().row_order; }
    Hash128 fingerprint() const override { return hash128(index_->digest()); }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        const auto& blocks = index_->stored_blocks(field);
        const auto after = std::ranges::upper_bound(blocks, row, {}, &StoredBlock::first_row);
        const auto number = static_cast<std::size_t>(after - blocks.begin()) - 1;
        const auto bytes = caches_[field]->block(number, [&] { return read_block(field, number); });
        const std::uint64_t inside = (row - blocks[number].first_row) * out.size();
        std::ranges::copy(std::span(*bytes).subspan(inside, out.size()), out.begin());
    }

  private:
    std::vector<std::byte> read_block(std::size_t field, std::size_t number) const {
        auto reader = take_reader();
        const auto rows = reader->read_block(field, number);
        std::vector<std::byte> bytes(rows.begin(), rows.end());
        const std::scoped_lock lock(mutex_);
        idle_.push_back(std::move(reader));
        return bytes;
    }
    std::unique_ptr<BlockReader> take_reader() const {
        const std::scoped_lock lock(mutex_);
        if (idle_.empty()) return std::make_unique<BlockReader>(files_);
        auto reader = std::move(idle_.back());
        idle_.pop_back();
        return reader;
    }

    mutable ShardFiles files_;
    std::shared_ptr<const DatasetIndex> index_;
    std::vector<std::unique_ptr<BlockCache>> caches_;
    mutable std::mutex mutex_;
    mutable std::vector<std::unique_ptr<BlockReader>> idle_;
};

}  // namespace

std::unique_ptr<RowSource> open_packed(std::shared_ptr<const DatasetIndex> index,
                                       std::size_t cached_blocks) {
    return std::make_unique<PackedSource>(std::move(index), cached_blocks);
}

}  // namespace lockstep
