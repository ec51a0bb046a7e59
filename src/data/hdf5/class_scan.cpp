// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/advice.hpp"

#include "foreign.hpp"
#include "format/labels.hpp"
#include "format/widening.hpp"
#include "stream/block_reader.hpp"

#include <fmt/format.h>

namespace lockstep {

std::vector<std::uint64_t> counted_classes(const DatasetIndex& index, std::size_t field) {
    ShardFiles files(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(files, field);
    std::vector<std::uint64_t> counts;
    const Field& described = index.fields()[field];
    const auto& blocks = index.stored_blocks(field);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
        const std::span<const std::byte> rows = reader.read_block(field, b);
        const std::optional<BadLabel> bad = first_label_beyond(described, rows, max_classes);
        check(!bad, [&] {
            const bool is_whole_number = bad->label != Widening::no_class;
            return Error(
                "E210",
                fmt::format(
                    "{} of sample {} in '{}' is {}",
                    is_whole_number ? label_text(described, bad->label) : "label",
                    grouped(blocks[b].first_row + bad->element * element_bytes(described.type) /
                                                      index.row_bytes_of(field, blocks[b])),
                    index.shards()[blocks[b].shard].name,
                    is_whole_number ? "out of range" : "no whole number"),
                "a label is a class number: 0 and up",
                (described.shape.empty()
                     ? "to predict these numbers: " + way_to_rename(index, field, "targets") + "; "
                     : "") +
                    "to number the values that occur from 0, in sorted order, " +
                    way_to_rewrite(
                        index, field, "n.unique(x,return_inverse=True)[1].reshape(x.shape)"));
        });
        count_labels(described, rows, counts);
    }
    return counts;
}

}  // namespace lockstep
