// SPDX-License-Identifier: Apache-2.0
#include "cut_cost.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/data/order.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double nearly_once = 1.05;

// What of a band's rows are in one block of the order is expanded with the whole band.
std::uint64_t blocks_touched(const std::vector<RowBlock>& order,
                             std::size_t& first,
                             const StoredBlock& band) {
    const std::uint64_t end = band.first_row + band.rows;
    while (order[first].first + order[first].rows <= band.first_row) ++first;
    std::size_t last = first;
    while (last + 1 < order.size() && order[last + 1].first < end) ++last;
    return last - first + 1;
}

// At most, by windows that find nothing kept: mean over the first epochs of the usual lanes, for
// which blocks lie on borders changes with each.
double most_reads_of_a_block(const std::vector<RowBlock>& blocks) {
    constexpr std::uint64_t epochs = 4;
    std::uint64_t reads = 0;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch)
        reads += EpochOrder(blocks, {}, epoch).block_reads();
    return static_cast<double>(reads) / static_cast<double>(epochs * blocks.size());
}

std::string cost_text(const DatasetIndex& index, std::size_t number) {
    const Field& field = index.fields()[number];
    const StoredBlock& block = index.stored_blocks(number)[0];
    const Cut& cut = *index.cut_of(block);
    const std::uint64_t row_bytes = cut.chunk_elements() * element_bytes(field.type);
    const double times = times_expanded(index, number);
    const double most = times * most_reads_of_a_block(index.blocks());
    const std::uint64_t rows =
        std::min<std::uint64_t>(index.manifest().block_rows, index.samples());
    return fmt::format(
        "chunks of '{}', {} x {}, cut samples: in lanes order each byte is expanded {:.1f} "
        "times{}, "
        "in blocks of {} samples ({}); {}",
        field.name,
        block.decoded_bytes / row_bytes,
        fmt::join(cut.chunk, " x "),
        times,
        most < nearly_once * times
            ? std::string()
            : fmt::format(" (up to {:.1f} by several ranks or with little memory)", most),
        grouped(rows),
        bytes_text(rows * field.bytes_per_sample()),
        times < nearly_once ? "packing would save nothing but memory, and add hashes"
                            : "in packed shards it is expanded once");
}

}  // namespace

double times_expanded(const DatasetIndex& index, std::size_t field) {
    const std::vector<RowBlock> order = index.blocks();
    double once = 0, all = 0;
    std::size_t first = 0;
    for (const StoredBlock& block : index.stored_blocks(field)) {
        const auto bytes = static_cast<double>(block.decoded_bytes);
        once += bytes;
        all += bytes * static_cast<double>(blocks_touched(order, first, block));
    }
    return all / once;
}

std::vector<std::string> cut_costs(const DatasetIndex& index) {
    std::vector<std::string> lines;
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        if (index.stored_blocks(f)[0].cut != 0) lines.push_back(cost_text(index, f));
    return lines;
}

}  // namespace lockstep
