// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "foreign.hpp"
#include "format/labels.hpp"
#include "stream/block_reader.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_classes = 1'000'000;

}  // namespace

std::vector<std::uint64_t> counted_classes(const DatasetIndex& index, std::size_t field) {
    ShardFiles files(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(files);
    std::vector<std::uint64_t> counts;
    const auto& blocks = index.stored_blocks(field);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const std::byte> rows = reader.read_block(field, b);
        for (std::size_t row = 0; row < blocks[b].rows; ++row) {
            const std::int64_t label = label_at(index.fields()[field].type, rows, row);
            check(label >= 0 && label < most_classes, [&] {
                return Error("E210",
                             fmt::format("label {} of sample {} in '{}' is out of range",
                                         label,
                                         grouped(blocks[b].first_row + row),
                                         index.shards()[blocks[b].shard].name),
                             "a label is a class number: 0 and up",
                             "give the field a layout such as 'value' if it is no label");
            });
            if (static_cast<std::size_t>(label) >= counts.size())
                counts.resize(static_cast<std::size_t>(label) + 1);
            ++counts[static_cast<std::size_t>(label)];
        }
    }
    return counts;
}

}  // namespace lockstep
