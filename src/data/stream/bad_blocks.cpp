// SPDX-License-Identifier: Apache-2.0
#include "bad_blocks.hpp"

#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t most_warnings = 50;

}  // namespace

std::size_t number_in_shard(const std::vector<StoredBlock>& blocks, std::size_t block) {
    const auto first =
        std::ranges::lower_bound(blocks, blocks[block].shard, {}, &StoredBlock::shard);
    return block - static_cast<std::size_t>(first - blocks.begin());
}

bool is_about_data(const Error& error) {
    switch (kind_of(error)) {
        case ErrorKind::file_missing:
        case ErrorKind::file_forbidden:
        case ErrorKind::data_damaged:
        case ErrorKind::device_failed:
            return true;
        default:
            return false;
    }
}

void BadBlocks::add(const BlockPiece& piece, const Error& error) {
    const std::scoped_lock lock(mutex_);
    if (!known_.insert({piece.field, piece.block}).second) return;
    const ErrorKind kind = kind_of(error);
    if (kind == ErrorKind::file_missing || kind == ErrorKind::file_forbidden)
        return warn_of_shard(files_.index().stored_blocks(piece.field)[piece.block].shard, error);
    if (++warnings_ <= most_warnings) warn_of_block(piece, error);
    if (warnings_ == most_warnings)
        here(Level::warn, "{} blocks are bad; further ones are only counted", most_warnings);
}

void BadBlocks::warn_of_shard(std::uint32_t shard, const Error& error) {
    if (!closed_.insert(shard).second) return;
    const Shard& closed = files_.index().shards()[shard];
    here(Level::warn,
         "samples {} to {} are masked: error {}: {}",
         grouped(closed.first_sample),
         grouped(closed.first_sample + closed.samples - 1),
         error.code(),
         error.what());
}

void BadBlocks::warn_of_block(const BlockPiece& piece, const Error& error) const {
    const auto& blocks = files_.index().stored_blocks(piece.field);
    const StoredBlock& block = blocks[piece.block];
    here(Level::warn,
         "samples {} to {} are masked: '{}', field '{}', block {} at offset {}: error {}: {}",
         grouped(block.first_row),
         grouped(block.first_row + block.rows - 1),
         files_.path(block.shard).string(),
         files_.index().fields()[piece.field].name,
         number_in_shard(blocks, piece.block),
         grouped(block.offset),
         error.code(),
         error.why().empty() ? error.what() : error.why());
}

}  // namespace lockstep
