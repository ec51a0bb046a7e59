// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/row_block.hpp"

#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep {
namespace {

SamplePart side_of(SamplePart::Side side, double share) {
    return {side, static_cast<std::uint64_t>(std::ldexp(share, 64))};
}

std::uint32_t rows_outside(const RowBlock& block, const SamplePart& part) {
    std::uint32_t outside = 0;
    for (std::uint32_t row = 0; row < block.rows; ++row)
        outside += part.holds(block.first + row) ? 0 : 1;
    return outside;
}

}  // namespace

SamplePart SamplePart::first(double share) {
    return side_of(Side::first, share);
}

SamplePart SamplePart::second(double share) {
    return side_of(Side::second, share);
}

bool SamplePart::holds(std::uint64_t sample) const {
    if (side == Side::all) return true;
    const bool is_first = hash64(std::as_bytes(std::span(&sample, 1))) < bound;
    return is_first == (side == Side::first);
}

std::vector<RowBlock> blocks_in(std::vector<RowBlock> blocks, const SamplePart& part) {
    if (part.side == SamplePart::Side::all) return blocks;
    for (RowBlock& block : blocks) block.left_out = rows_outside(block, part);
    std::erase_if(blocks, [](const RowBlock& block) { return block.used() == 0; });
    return blocks;
}

std::uint64_t samples_in(const std::vector<RowBlock>& blocks, const SamplePart& part) {
    std::uint64_t samples = 0;
    for (const RowBlock& block : blocks_in(blocks, part)) samples += block.used();
    return samples;
}

std::vector<RowBlock> row_blocks(std::uint64_t samples, std::uint32_t block_rows) {
    std::vector<RowBlock> blocks;
    blocks.reserve((samples + block_rows - 1) / block_rows);
    for (std::uint64_t first = 0; first < samples; first += block_rows) {
        const auto rows = std::min<std::uint64_t>(block_rows, samples - first);
        blocks.push_back({first, static_cast<std::uint32_t>(rows)});
    }
    return blocks;
}

}  // namespace lockstep
