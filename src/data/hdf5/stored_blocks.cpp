// SPDX-License-Identifier: Apache-2.0
#include "stored_blocks.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"

#include "format/codec.hpp"
#include "format/index_columns.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

// The form of those chunks of a data set that skipped the same filters.
struct Way {
    Codec codec = Codec::none;
    std::uint16_t chain = 0;
    FilterChain filters;
    bool compresses = false;
    std::uint64_t checksum_bytes = 0;
    std::string fault;
    bool lacks_filter = false;
};

std::string unknown_filter(std::uint64_t kind) {
    if (kind == static_cast<std::uint64_t>(FilterKind::blosc))
        return "its filter is blosc, and this program was built without c-blosc "
               "(LOCKSTEP_WITH_BLOSC, Debian's libblosc-dev)";
    return fmt::format(
        "its filter {} is none of deflate, shuffle, fletcher32, lzf, blosc, lz4, zstd",
        filter_name(kind));
}

class Ways {
  public:
    Ways(const DatasetFacts& facts, const RowsInFile& rows, std::vector<FilterChain>& chains)
        : facts_(facts), rows_(rows), chains_(chains) {}

    const Way& of(std::uint64_t skipped) {
        const auto known = ways_.find(skipped);
        return known != ways_.end() ? known->second
                                    : ways_.emplace(skipped, make(skipped)).first->second;
    }

  private:
    Way make(std::uint64_t skipped) {
        FilterChain chain;
        Way way;
        if (rows_.unpacking)
            chain.push_back(rows_.unpacking->as_filter());
        else if (rows_.widening.is_known())
            chain.push_back({FilterKind::widening, rows_.widening.code()});
        for (std::size_t i = 0; i < facts_.filters.size(); ++i) {
            if (i < 64 && (skipped >> i & 1) != 0) continue;
            const FilterFacts& filter = facts_.filters[i];
            if (!is_known_filter(filter.kind))
                return {.fault = unknown_filter(filter.kind), .lacks_filter = true};
            const auto kind = static_cast<FilterKind>(filter.kind);
            const bool is_shuffle = kind == FilterKind::shuffle;
            chain.push_back({kind, is_shuffle && !filter.values.empty() ? filter.values[0] : 0});
            way.checksum_bytes += kind == FilterKind::fletcher32 ? 4 : 0;
            way.compresses |= !is_shuffle && kind != FilterKind::fletcher32;
        }
        way.fault = filter_fault(chain);
        if (way.fault.empty()) name(chain, way);
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
        way.codec = Codec::filters;
        way.chain = static_cast<std::uint16_t>(number_in(chains_, chain));
        if (chains_.size() > 0xffff) way.fault = "too many different filters";
    }

    const DatasetFacts& facts_;
    const RowsInFile& rows_;
    std::vector<FilterChain>& chains_;
    std::map<std::uint64_t, Way> ways_;
};

bool lies_in_file(std::uint64_t offset, std::uint64_t bytes, const RowsInFile& rows) {
    return offset <= rows.file_bytes && bytes <= rows.file_bytes - offset;
}

FoundBlocks contiguous_blocks(const DatasetFacts& facts,
                              const RowsInFile& rows,
                              BlockForms& forms) {
    if (facts.offset == DatasetFacts::nowhere) return {{}, "it was never written"};
    const std::uint64_t row_bytes = rows.stored_bytes(rows.row_bytes);
    if (rows.samples > rows.file_bytes / row_bytes ||
        !lies_in_file(facts.offset, rows.samples * row_bytes, rows))
        return {{}, "its rows lie outside of the file"};
    const Way way = Ways(facts, rows, forms.chains).of(0);
    if (!way.fault.empty()) return {{}, way.fault, way.lacks_filter};
    FoundBlocks found;
    const std::vector<RowBlock> blocks = row_blocks(rows.samples, rows.contiguous_rows);
    found.blocks.reserve(blocks.size());
    for (const RowBlock& block : blocks) {
        found.blocks.push_back({.first_row = rows.first_sample + block.first,
                                .offset = facts.offset + block.first * row_bytes,
                                .stored_bytes = block.rows * row_bytes,
                                .decoded_bytes = block.rows * rows.row_bytes,
                                .rows = block.rows,
                                .shard = rows.shard,
                                .codec = way.codec,
                                .chain = way.chain});
    }
    return found;
}

// Returns the cut of samples by chunks; nothing if there is none.
std::optional<Cut> cut_of(const DatasetFacts& facts) {
    if (facts.has_whole_rows()) return {};
    return Cut{{facts.size.begin() + 1, facts.size.end()},
               {facts.chunk.begin() + 1, facts.chunk.end()}};
}

// The chunks of one data set, one after the other.
class Chunks {
  public:
    Chunks(const DatasetFacts& facts, const RowsInFile& rows, BlockForms& forms)
        : facts_(facts), rows_(rows), forms_(forms), ways_(facts, rows, forms.chains) {}

    FoundBlocks blocks() {
        std::string fault = begin();
        FoundBlocks found;
        found.blocks.reserve(fault.empty() ? facts_.chunks.offsets.size() : 0);
        for (std::uint64_t i = 0; fault.empty() && i < facts_.chunks.offsets.size(); ++i) {
            const Way& way = way_of(i);
            if (!way.fault.empty()) return {{}, way.fault, way.lacks_filter};
            fault = fault_of(i, way);
            found.blocks.push_back(block(i, way));
        }
        return fault.empty() ? std::move(found) : FoundBlocks{{}, std::move(fault)};
    }

  private:
    // Returns the fault that all of them share.
    std::string begin() {
        if (!facts_.has_sound_chunks()) return "its chunks have an impossible shape";
        if (!facts_.chunks.fault.empty()) return printable(facts_.chunks.fault);
        if (facts_.chunks.offsets.size() != facts_.chunk_count())
            return "some of its chunks are missing";
        std::uint64_t row_bytes = rows_.row_bytes;
        if ((cut_ = cut_of(facts_))) {
            if (!cut_->is_sound()) return "its chunks are too large";
            std::uint64_t elements = 1;
            for (const std::uint64_t size : cut_->sample) elements *= size;
            row_bytes = rows_.row_bytes / elements * cut_->chunk_elements();
            tiles_ = cut_->tiles();
            number_ = static_cast<std::uint16_t>(number_in(forms_.cuts, *cut_) + 1);
            if (forms_.cuts.size() > 0xffff) return "its files cut samples in too many ways";
        }
        if (facts_.chunk[0] > most_decoded_bytes / row_bytes) return "its chunks are too large";
        decoded_ = facts_.chunk[0] * row_bytes;
        return "";
    }

    std::uint64_t first_row(std::uint64_t i) const { return i / tiles_ * facts_.chunk[0]; }
    std::uint64_t rows_of(std::uint64_t i) const {
        return std::min(rows_.samples - first_row(i), facts_.chunk[0]);
    }

    const Way& way_of(std::uint64_t i) {
        const bool is_partial = rows_of(i) < facts_.chunk[0] ||
                                (cut_ && cut_->elements_of(i % tiles_) < cut_->chunk_elements());
        const bool is_left = facts_.leaves_partial_chunks && is_partial;
        return ways_.of(is_left ? ~std::uint64_t{0} : facts_.chunks.skipped[i]);
    }

    std::string fault_of(std::uint64_t i, const Way& way) const {
        const std::uint64_t stored = facts_.chunks.bytes[i];
        if (stored < 1 || !lies_in_file(facts_.chunks.offsets[i], stored, rows_))
            return fmt::format("the chunk of row {} lies outside of the file", first_row(i));
        const bool fits = way.compresses
                              ? decoded_ <= most_expanded(way.filters, stored)
                              : stored == rows_.stored_bytes(decoded_) + way.checksum_bytes;
        return fits ? "" : fmt::format("the chunk of row {} has a wrong size", first_row(i));
    }

    StoredBlock block(std::uint64_t i, const Way& way) const {
        return {.first_row = rows_.first_sample + first_row(i),
                .offset = facts_.chunks.offsets[i],
                .stored_bytes = facts_.chunks.bytes[i],
                .decoded_bytes = decoded_,
                .rows = static_cast<std::uint32_t>(rows_of(i)),
                .shard = rows_.shard,
                .codec = way.codec,
                .chain = way.chain,
                .cut = number_,
                .tile = static_cast<std::uint32_t>(i % tiles_)};
    }

    const DatasetFacts& facts_;
    const RowsInFile& rows_;
    BlockForms& forms_;
    Ways ways_;
    std::optional<Cut> cut_;
    std::uint64_t tiles_ = 1, decoded_ = 0;
    std::uint16_t number_ = 0;
};

// A window holds whole bands of chunks that cut samples, so that each is expanded once, up to here.
constexpr std::uint64_t most_band_bytes = std::uint64_t{64} << 20;

// So many rows of a band of `rows` that they divide it, if that is not far from as many as fit.
std::uint64_t part_of_band(std::uint64_t rows, std::uint64_t row_bytes) {
    const std::uint64_t least = (rows * row_bytes - 1) / most_band_bytes + 1;
    for (std::uint64_t parts = least; parts < 2 * least && parts <= rows; ++parts)
        if (rows % parts == 0) return rows / parts;
    return std::max<std::uint64_t>(rows / least, 1);
}

}  // namespace

std::uint32_t rows_of_blocks(const DatasetFacts& facts, std::uint64_t row_bytes) {
    constexpr std::uint64_t block_bytes = 512 * 1024, smallest_block_bytes = 64 * 1024;
    std::uint64_t rows = std::max<std::uint64_t>(1, block_bytes / row_bytes);
    if (facts.layout == StorageLayout::chunked) {
        const std::uint64_t chunk = facts.chunk[0];
        const bool is_small = chunk * row_bytes < smallest_block_bytes;
        if (is_small)
            rows = std::max(chunk, rows / chunk * chunk);
        else
            rows = facts.has_whole_rows() ? chunk : part_of_band(chunk, row_bytes);
    }
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(rows, 1, 0x7fffffff));
}

// Names of unsupported filters;
// https://github.com/HDFGroup/hdf5_plugins/blob/master/docs/RegisteredFilterPlugins.md
std::string filter_name(std::uint64_t kind) {
    const std::map<std::uint64_t, std::string> names = {
        {4, "szip"}, {5, "nbit"}, {6, "scale-offset"}, {32008, "bitshuffle"}, {32026, "blosc2"}};
    const auto found = names.find(kind);
    return found == names.end() ? fmt::format("{}", kind)
                                : fmt::format("{} ({})", kind, found->second);
}

FoundBlocks blocks_of(const DatasetFacts& facts, const RowsInFile& rows, BlockForms& forms) {
    using enum StorageLayout;
    if (facts.layout == contiguous) return contiguous_blocks(facts, rows, forms);
    if (facts.layout == chunked) return Chunks(facts, rows, forms).blocks();
    const bool is_elsewhere = facts.layout == elsewhere || facts.layout == linked;
    return {{}, is_elsewhere ? lies_elsewhere : "it is neither contiguous nor in chunks"};
}

}  // namespace lockstep
