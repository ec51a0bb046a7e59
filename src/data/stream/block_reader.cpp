// SPDX-License-Identifier: Apache-2.0
#include "block_reader.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

// Adds the seconds of its scope to `total`.
class Timed {
  public:
    explicit Timed(double& total) : total_(total), since_(now_s()) {}
    ~Timed() { total_ += now_s() - since_; }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

  private:
    double& total_;
    double since_;
};

std::uint64_t largest(const DatasetIndex& index, std::uint64_t StoredBlock::*size) {
    std::uint64_t bytes = 0;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : index.stored_blocks(f))
            bytes = std::max(bytes, block.*size);
    return bytes;
}

std::size_t block_of_row(const std::vector<StoredBlock>& blocks, std::uint64_t row) {
    const auto after = std::ranges::upper_bound(blocks, row, {}, &StoredBlock::first_row);
    return static_cast<std::size_t>(after - blocks.begin()) - 1;
}

std::size_t number_in_shard(const std::vector<StoredBlock>& blocks, std::size_t block) {
    const auto first =
        std::ranges::lower_bound(blocks, blocks[block].shard, {}, &StoredBlock::shard);
    return block - static_cast<std::size_t>(first - blocks.begin());
}

}  // namespace

ShardFiles::ShardFiles(std::shared_ptr<const DatasetIndex> index)
    : index_(std::move(index)), files_(index_->shards().size()) {}

std::filesystem::path ShardFiles::path(std::uint32_t shard) const {
    return index_->path() / index_->shards()[shard].name;
}

int ShardFiles::descriptor(std::uint32_t shard) {
    const std::scoped_lock lock(mutex_);
    UniqueFd& file = files_[shard];
    if (!file) file = open_for_reading(path_beneath(index_->path(), index_->shards()[shard].name));
    return file.value();
}

BlockReader::BlockReader(ShardFiles& files)
    : files_(files),
      index_(files.index()),
      stored_(largest(index_, &StoredBlock::stored_bytes)),
      decoded_(largest(index_, &StoredBlock::decoded_bytes)) {}

std::uint64_t BlockReader::buffer_bytes(const DatasetIndex& index) {
    const std::uint64_t stored = largest(index, &StoredBlock::stored_bytes);
    const std::uint64_t decoded = largest(index, &StoredBlock::decoded_bytes);
    std::uint64_t between = 0;
    for (const FilterChain& chain : index.chains())
        between = std::max(between, Decoder::buffer_bytes(chain, stored, decoded));
    return stored + decoded + between;
}

void BlockReader::read_rows(std::size_t field,
                            std::uint64_t first,
                            std::uint64_t rows,
                            std::span<std::byte> out) {
    const auto& blocks = index_.stored_blocks(field);
    const std::size_t row_bytes = index_.fields()[field].bytes_per_sample();
    for (std::size_t b = block_of_row(blocks, first); rows > 0; ++b) {
        const StoredBlock& block = blocks[b];
        const std::uint64_t inside = first - block.first_row;
        const std::uint64_t take = std::min(block.rows - inside, rows);
        const std::span<std::byte> place = out.first(take * row_bytes);
        if (place.size() == block.decoded_bytes)
            read_into(field, b, place);
        else
            std::ranges::copy(read_block(field, b).subspan(inside * row_bytes, place.size()),
                              place.begin());
        out = out.subspan(place.size());
        first += take;
        rows -= take;
    }
}

std::span<const std::byte> BlockReader::read_block(std::size_t field, std::size_t block) {
    const std::span<std::byte> decoded =
        std::span(decoded_).first(index_.stored_blocks(field)[block].decoded_bytes);
    read_into(field, block, decoded);
    const std::size_t row_bytes = index_.fields()[field].bytes_per_sample();
    return decoded.first(index_.stored_blocks(field)[block].rows * row_bytes);
}

void BlockReader::read_into(std::size_t field, std::size_t number, std::span<std::byte> out) {
    const StoredBlock& block = index_.stored_blocks(field)[number];
    const bool is_raw = block.codec == Codec::none;
    const std::span<std::byte> stored = is_raw ? out : std::span(stored_).first(block.stored_bytes);
    fetch(block, stored);
    if (!is_intact(block, stored)) {
        ++stats_.retries;
        ::posix_fadvise(files_.descriptor(block.shard),
                        static_cast<off_t>(block.offset),
                        static_cast<off_t>(block.stored_bytes),
                        POSIX_FADV_DONTNEED);
        fetch(block, stored);
        if (!is_intact(block, stored))
            throw damaged(field,
                          number,
                          fmt::format("their XXH3-64 is {}, the index says {}; read twice",
                                      hex64(hash64(stored)),
                                      hex64(block.hash)));
    }
    if (!is_raw) {
        const Timed timed(stats_.decode_s);
        const FilterChain& chain = index_.chain_of(block);
        if (!decoder_.decode(chain, stored, out))
            throw damaged(field, number, fmt::format("they are not valid {}", filter_text(chain)));
    }
    check_labels(field, block, out.first(block.rows * index_.fields()[field].bytes_per_sample()));
}

void BlockReader::fetch(const StoredBlock& block, std::span<std::byte> stored) {
    const Timed timed(stats_.read_s);
    const fs::path path = files_.path(block.shard);
    const std::size_t got = read_at(files_.descriptor(block.shard), stored, block.offset, path);
    check(got == stored.size(), [&] {
        return Error("E204",
                     fmt::format("'{}' is cut short: {} of {} bytes",
                                 path.string(),
                                 grouped(block.offset + got),
                                 grouped(index_.shards()[block.shard].bytes)),
                     "it was whole when it was opened",
                     "copy it again from its source, then run 'lockstep data verify'");
    });
    ++stats_.blocks_read;
    stats_.bytes_read += got;
}

bool BlockReader::is_intact(const StoredBlock& block, std::span<const std::byte> stored) {
    if (!block.is_hashed) return true;
    const Timed timed(stats_.verify_s);
    return hash64(stored) == block.hash;
}

void BlockReader::check_labels(std::size_t number,
                               const StoredBlock& block,
                               std::span<const std::byte> rows) const {
    const Field& field = index_.fields()[number];
    if (field.classes() == 0 || field.type != ElementType::i64) return;
    for (std::size_t row = 0; row < block.rows; ++row) {
        std::int64_t label = 0;
        std::memcpy(&label, rows.data() + row * sizeof label, sizeof label);
        check(label >= 0 && label < field.classes(), [&] {
            return Error(
                "E210",
                fmt::format(
                    "label {} of sample {} is out of range", label, grouped(block.first_row + row)),
                fmt::format("field '{}' in '{}' has {} classes",
                            field.name,
                            files_.path(block.shard).string(),
                            field.classes()),
                "pack the data again from sound labels");
        });
    }
}

Error BlockReader::damaged(std::size_t field, std::size_t number, const std::string& why) const {
    const auto& blocks = index_.stored_blocks(field);
    const StoredBlock& block = blocks[number];
    return Error("E213",
                 fmt::format("'{}' is damaged: field '{}', block {}, {} bytes at offset {} "
                             "(samples {} to {})",
                             files_.path(block.shard).string(),
                             index_.fields()[field].name,
                             number_in_shard(blocks, number),
                             grouped(block.stored_bytes),
                             grouped(block.offset),
                             grouped(block.first_row),
                             grouped(block.first_row + block.rows - 1)),
                 why,
                 "restore the shard from its source, then run 'lockstep data verify'");
}

}  // namespace lockstep
