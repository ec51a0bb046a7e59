// SPDX-License-Identifier: Apache-2.0
#include "stored_blocks.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "format/expansion.hpp"
#include "format/index_columns.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// How the chunks of one data set were stored that skipped the same filters.
struct Way {
    Codec codec = Codec::none;
    std::uint16_t chain = 0;
    FilterChain filters;
    bool compresses = false;
    std::uint64_t checksum_bytes = 0;
    BlockTrouble trouble = BlockTrouble::none;
    std::string fault;
};

FoundBlocks unreadable(std::string fault) {
    return {{}, BlockTrouble::unreadable, std::move(fault)};
}

// Of a filter that is not read;
// https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
std::string filter_name(std::uint64_t kind) {
    switch (kind) {
        case 4:
            return "4 (szip)";
        case 5:
            return "5 (nbit)";
        case 6:
            return "6 (scale-offset)";
        case 32000:
            return "32000 (lzf)";
        case 32008:
            return "32008 (bitshuffle)";
        case 32026:
            return "32026 (blosc2)";
        default:
            return fmt::format("{}", kind);
    }
}

std::string unknown_filter(std::uint64_t kind) {
    if (kind == static_cast<std::uint64_t>(FilterKind::blosc))
        return "its filter is blosc, and this program was built without c-blosc "
               "(LOCKSTEP_WITH_BLOSC, Debian's libblosc-dev)";
    return fmt::format("its filter {} is none of deflate, shuffle, fletcher32, blosc, lz4, zstd",
                       filter_name(kind));
}

class Ways {
  public:
    Ways(const DatasetFacts& facts, Widening widening, std::vector<FilterChain>& chains)
        : facts_(facts), widening_(widening), chains_(chains) {}

    const Way& of(std::uint64_t skipped) {
        const auto known = ways_.find(skipped);
        return known != ways_.end() ? known->second
                                    : ways_.emplace(skipped, make(skipped)).first->second;
    }

  private:
    Way make(std::uint64_t skipped) {
        FilterChain chain;
        Way way;
        if (widening_.is_known()) chain.push_back({FilterKind::widening, widening_.code()});
        for (std::size_t i = 0; i < facts_.filters.size(); ++i) {
            if (i < 64 && (skipped >> i & 1) != 0) continue;
            const FilterFacts& filter = facts_.filters[i];
            if (!is_known_filter(filter.kind))
                return {.trouble = BlockTrouble::unknown_filter,
                        .fault = unknown_filter(filter.kind)};
            const auto kind = static_cast<FilterKind>(filter.kind);
            const bool is_shuffle = kind == FilterKind::shuffle;
            chain.push_back({kind, is_shuffle && !filter.values.empty() ? filter.values[0] : 0});
            way.checksum_bytes += kind == FilterKind::fletcher32 ? 4 : 0;
            way.compresses |= !is_shuffle && kind != FilterKind::fletcher32;
        }
        way.fault = filter_fault(chain);
        if (way.fault.empty()) name(chain, way);
        if (!way.fault.empty()) way.trouble = BlockTrouble::unreadable;
        way.filters = std::move(chain);
        return way;
    }

    // A chain of one codec of packed shards is that codec.
    void name(const FilterChain& chain, Way& way) {
        if (chain.empty()) return;
        for (const Codec codec : {Codec::deflate, Codec::lz4, Codec::zstd})
            if (chain.size() == 1 &&
                static_cast<std::uint16_t>(chain[0].kind) == static_cast<std::uint16_t>(codec)) {
                way.codec = codec;
                return;
            }
        const auto found = std::ranges::find(chains_, chain);
        way.codec = Codec::filters;
        way.chain = static_cast<std::uint16_t>(found - chains_.begin());
        if (found == chains_.end()) chains_.push_back(chain);
        if (chains_.size() > 0xffff) way.fault = "too many different filters";
    }

    const DatasetFacts& facts_;
    Widening widening_;
    std::vector<FilterChain>& chains_;
    std::map<std::uint64_t, Way> ways_;
};

bool lies_in_file(std::uint64_t offset, std::uint64_t bytes, const RowsInFile& rows) {
    return offset <= rows.file_bytes && bytes <= rows.file_bytes - offset;
}

FoundBlocks contiguous_blocks(const DatasetFacts& facts,
                              const RowsInFile& rows,
                              std::vector<FilterChain>& chains) {
    if (facts.offset == DatasetFacts::nowhere) return unreadable("it was never written");
    if (rows.samples > rows.file_bytes / rows.stored_bytes(1) ||
        !lies_in_file(facts.offset, rows.stored_bytes(rows.samples), rows))
        return unreadable("its rows lie outside of the file");
    const Way way = Ways(facts, rows.widening, chains).of(0);
    if (!way.fault.empty()) return {{}, way.trouble, way.fault};
    FoundBlocks found;
    const std::vector<RowBlock> blocks = row_blocks(rows.samples, rows.contiguous_rows);
    found.blocks.reserve(blocks.size());
    for (const RowBlock& block : blocks) {
        found.blocks.push_back({.first_row = rows.first_sample + block.first,
                                .offset = facts.offset + rows.stored_bytes(block.first),
                                .stored_bytes = rows.stored_bytes(block.rows),
                                .decoded_bytes = block.rows * rows.row_bytes,
                                .rows = block.rows,
                                .shard = rows.shard,
                                .codec = way.codec,
                                .chain = way.chain});
    }
    return found;
}

FoundBlocks chunked_blocks(const DatasetFacts& facts,
                           const RowsInFile& rows,
                           std::vector<FilterChain>& chains) {
    if (!facts.has_whole_rows()) return unreadable("its chunks cut samples in parts");
    if (!facts.chunks.fault.empty()) return unreadable(printable(facts.chunks.fault));
    const auto chunk_rows = static_cast<std::uint32_t>(facts.chunk[0]);
    const std::uint64_t count = (rows.samples - 1) / chunk_rows + 1;
    if (facts.chunks.offsets.size() != count) return unreadable("some of its chunks are missing");
    if (chunk_rows > most_decoded_bytes / rows.row_bytes)
        return unreadable("its chunks are too large");
    const std::uint64_t decoded = chunk_rows * rows.row_bytes;
    Ways ways(facts, rows.widening, chains);
    FoundBlocks found;
    found.blocks.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t first = i * chunk_rows, left = rows.samples - first;
        const bool is_left = facts.leaves_partial_chunks && left < chunk_rows;
        const Way& way = ways.of(is_left ? ~std::uint64_t{0} : facts.chunks.skipped[i]);
        if (!way.fault.empty()) return {{}, way.trouble, way.fault};
        const std::uint64_t stored = facts.chunks.bytes[i];
        if (stored < 1 || !lies_in_file(facts.chunks.offsets[i], stored, rows))
            return unreadable(fmt::format("the chunk of row {} lies outside of the file", first));
        if (way.compresses ? decoded > most_expanded(way.filters, stored)
                           : stored != rows.stored_bytes(chunk_rows) + way.checksum_bytes)
            return unreadable(fmt::format("the chunk of row {} has a wrong size", first));
        found.blocks.push_back(
            {.first_row = rows.first_sample + first,
             .offset = facts.chunks.offsets[i],
             .stored_bytes = stored,
             .decoded_bytes = decoded,
             .rows = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, chunk_rows)),
             .shard = rows.shard,
             .codec = way.codec,
             .chain = way.chain});
    }
    return found;
}

}  // namespace

FoundBlocks blocks_of(const DatasetFacts& facts,
                      const RowsInFile& rows,
                      std::vector<FilterChain>& chains) {
    switch (facts.layout) {
        case StorageLayout::contiguous:
            return contiguous_blocks(facts, rows, chains);
        case StorageLayout::chunked:
            return chunked_blocks(facts, rows, chains);
        case StorageLayout::missing:
        case StorageLayout::other:
        case StorageLayout::elsewhere:
            break;
    }
    return unreadable("it is neither contiguous nor in chunks, or lies in other files");
}

}  // namespace lockstep
