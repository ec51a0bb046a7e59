// SPDX-License-Identifier: Apache-2.0
#include "portion.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace lockstep {
namespace {

std::span<const StoredBlock> blocks_within(const DatasetIndex& index,
                                           std::size_t field,
                                           std::uint64_t rows) {
    const auto& blocks = index.stored_blocks(field);
    const auto end = std::ranges::lower_bound(blocks, rows, {}, &StoredBlock::first_row);
    return std::span(blocks).first(static_cast<std::size_t>(end - blocks.begin()));
}

// Blocks of at most one request together, each whole; bands of tiles by themselves.
std::vector<RowSpan> spans_of(const DatasetIndex& index, std::uint64_t rows) {
    std::vector<RowSpan> spans;
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        std::uint64_t begin = 0, end = 0;  // in the file
        for (const StoredBlock& block : blocks_within(index, f, rows)) {
            if (block.tile > 0) continue;
            const bool joins = block.cut == 0 && end > 0 && spans.back().shard == block.shard &&
                               end == block.offset &&
                               block.offset + block.stored_bytes - begin <= request_bytes;
            if (joins) {
                spans.back().rows += block.rows;
            } else {
                spans.push_back({f, block.shard, block.first_row, block.rows});
                begin = block.offset;
            }
            end = block.cut == 0 ? block.offset + block.stored_bytes : 0;
        }
    }
    std::ranges::stable_sort(spans, {}, &RowSpan::first);
    return spans;
}

std::vector<FilePiece> ranges_of(const DatasetIndex& index, std::uint64_t rows) {
    std::vector<FilePiece> ranges;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : blocks_within(index, f, rows))
            ranges.push_back({block.shard, block.offset, block.stored_bytes});
    std::ranges::sort(
        ranges, {}, [](const FilePiece& range) { return std::pair(range.shard, range.offset); });
    return ranges;
}

// Neighbours become one range, which is cut again into requests.
std::vector<FilePiece> requests_of(const std::vector<FilePiece>& ranges) {
    std::vector<FilePiece> requests;
    for (std::size_t i = 0; i < ranges.size();) {
        FilePiece merged = ranges[i];
        for (++i; i < ranges.size() && ranges[i].shard == merged.shard &&
                  ranges[i].offset == merged.offset + merged.bytes;
             ++i)
            merged.bytes += ranges[i].bytes;
        for (std::uint64_t done = 0; done < merged.bytes; done += request_bytes)
            requests.push_back(
                {merged.shard, merged.offset + done, std::min(request_bytes, merged.bytes - done)});
    }
    return requests;
}

}  // namespace

Portion first_rows(const DatasetIndex& index, std::uint64_t limit_bytes) {
    const std::uint64_t row_bytes = std::max<std::uint64_t>(index.manifest().bytes_per_sample(), 1);
    Portion portion;
    portion.rows = index.samples();
    if (portion.rows * row_bytes > limit_bytes) {
        const std::uint64_t block = std::max<std::uint64_t>(index.manifest().block_rows, 1);
        const std::uint64_t blocks = std::max<std::uint64_t>(limit_bytes / row_bytes / block, 1);
        portion.rows = std::min(portion.rows, blocks * block);
    }
    portion.decoded_bytes = portion.rows * row_bytes;
    portion.spans = spans_of(index, portion.rows);
    for (const RowSpan& span : portion.spans)
        portion.largest_span = std::max(portion.largest_span,
                                        span.rows * index.fields()[span.field].bytes_per_sample());
    const std::vector<FilePiece> ranges = ranges_of(index, portion.rows);
    for (const FilePiece& range : ranges) portion.stored_bytes += range.bytes;
    portion.files = requests_of(ranges);
    return portion;
}

}  // namespace lockstep
