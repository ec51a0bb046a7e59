// SPDX-License-Identifier: Apache-2.0
// Mean and deviation of a data set that is streamed: rows of its index are scanned as those of an
// input are before they are packed.
//
// Tested: data/pack/sources_test.cpp, e2e/numbers_test.cpp.
#include "lockstep/data/pack.hpp"
#include "lockstep/data/row_source.hpp"

#include "pack_space.hpp"
#include "stream/block_reader.hpp"
#include "stream/request_plan.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace lockstep {
namespace {

/// Rows of one thread, a block at a time: what is stored together is expanded once.
class BlockOfRows {
  public:
    explicit BlockOfRows(ShardFiles& files) : reader_(files) {}

    void read(const RowBlock& block,
              std::size_t field,
              std::uint64_t row,
              std::span<std::byte> out) {
        if (field != field_ || block.first != first_ || bytes_.empty()) {
            field_ = field;
            first_ = block.first;
            bytes_.resize(block.rows * out.size());
            reader_.read_rows(field, block.first, block.rows, bytes_);
        }
        std::memcpy(out.data(), bytes_.data() + (row - first_) * out.size(), out.size());
    }

  private:
    BlockReader reader_;
    std::size_t field_ = 0;
    std::uint64_t first_ = 0;
    std::vector<std::byte> bytes_;
};

/// Some fields of a data set.
class IndexSource : public RowSource {
  public:
    IndexSource(const std::shared_ptr<const DatasetIndex>& index,
                const std::vector<std::size_t>& places)
        : places_(places), files_(index), blocks_(index->blocks()) {
        for (const std::size_t place : places) fields_.push_back(index->fields()[place]);
    }

    std::uint64_t samples() const override { return files_.index().samples(); }
    const std::vector<Field>& fields() const override { return fields_; }

    void read(std::size_t field, std::uint64_t row, std::span<std::byte> out) const override {
        const auto block = std::prev(std::ranges::upper_bound(blocks_, row, {}, &RowBlock::first));
        rows_of_thread().read(*block, places_[field], row, out);
    }

    Hash128 fingerprint() const override { return {}; }  // nothing is written that needs it

  private:
    BlockOfRows& rows_of_thread() const {
        const std::lock_guard lock(mutex_);
        return rows_.try_emplace(std::this_thread::get_id(), files_).first->second;
    }

    std::vector<std::size_t> places_;
    std::vector<Field> fields_;
    mutable ShardFiles files_;
    std::vector<RowBlock> blocks_;
    mutable std::mutex mutex_;
    mutable std::map<std::thread::id, BlockOfRows> rows_;
};

}  // namespace

std::vector<Field> find_statistics(const std::shared_ptr<const DatasetIndex>& index,
                                   const std::vector<std::size_t>& places,
                                   const Team& team,
                                   int threads,
                                   const PackReport& report) {
    PackOptions options;
    options.team = team;
    options.threads = threads;
    return scan_fields(IndexSource(index, places), options, report);
}

}  // namespace lockstep
