// SPDX-License-Identifier: Apache-2.0
#include "request_plan.hpp"

#include <algorithm>
#include <tuple>

namespace lockstep {
namespace {

// The first one, if they are tiles.
std::size_t block_of_row(const std::vector<StoredBlock>& blocks, std::uint64_t row) {
    const auto after = std::ranges::upper_bound(blocks, row, {}, &StoredBlock::first_row);
    const auto last = static_cast<std::size_t>(after - blocks.begin()) - 1;
    return last - blocks[last].tile;
}

}  // namespace

void RequestPlan::clear() {
    pieces_.clear();
    requests_.clear();
}

void RequestPlan::add(std::size_t field,
                      std::uint64_t first,
                      std::uint64_t rows,
                      std::span<std::byte> out) {
    const auto& blocks = index_.stored_blocks(field);
    const std::size_t row_bytes = index_.fields()[field].bytes_per_sample();
    for (std::size_t b = block_of_row(blocks, first); rows > 0;) {
        const std::uint64_t begin = blocks[b].first_row, inside = first - begin;
        const std::uint64_t take = std::min(blocks[b].rows - inside, rows);
        const std::span<std::byte> place = out.empty() ? out : out.first(take * row_bytes);
        for (; b < blocks.size() && blocks[b].first_row == begin; ++b)
            pieces_.push_back({field, b, inside, place});
        out = out.subspan(place.size());
        first += take;
        rows -= take;
    }
}

void RequestPlan::add(std::span<const RowRun> runs, std::span<const std::span<std::byte>> fields) {
    for (std::size_t f = 0; f < fields.size(); ++f) {
        const std::size_t row_bytes = index_.fields()[f].bytes_per_sample();
        std::span<std::byte> rest = fields[f];
        for (const RowRun& run : runs) {
            const std::span<std::byte> out = rest.empty() ? rest : rest.first(run.rows * row_bytes);
            add(f, run.first, run.rows, out);
            rest = rest.subspan(out.size());
        }
    }
}

void RequestPlan::arrange() {
    std::ranges::sort(pieces_, {}, [this](const BlockPiece& piece) {
        return std::tuple(stored(piece).shard, stored(piece).offset, piece.field, piece.block);
    });
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
        const StoredBlock& block = stored(pieces_[i]);
        const bool is_again = i > 0 && pieces_[i - 1].field == pieces_[i].field &&
                              pieces_[i - 1].block == pieces_[i].block;
        if (!is_again && (requests_.empty() || !fits(requests_.back(), block)))
            requests_.push_back({block.shard, block.offset, block.offset, i, 0});
        ReadRequest& request = requests_.back();
        request.end = std::max(request.end, block.offset + block.stored_bytes);
        ++request.pieces;
    }
}

bool RequestPlan::fits(const ReadRequest& request, const StoredBlock& next) const {
    if (next.shard != request.shard || next.offset < request.end) return false;
    const std::uint64_t gap = next.offset - request.end;
    return gap <= limits_.gap_bytes && gap <= (request.end - request.begin) / 8 &&
           next.offset + next.stored_bytes - request.begin <= limits_.bytes &&
           request.pieces < limits_.pieces;
}

}  // namespace lockstep
