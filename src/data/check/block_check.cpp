// SPDX-License-Identifier: Apache-2.0
#include "block_check.hpp"

#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"

#include "format/labels.hpp"

#include <fmt/format.h>

namespace lockstep {

std::string sentence(const Error& error) {
    return error.why().empty() ? error.what() : fmt::format("{}: {}", error.what(), error.why());
}

Finding BlockCheck::finding(const PlacedBlock& placed,
                            const std::string& code,
                            const std::string& why) const {
    const StoredBlock& block = placed.block;
    const std::string& field = manifest_.fields[placed.field].name;
    return {.code = code,
            .file = manifest_.shards[shard_].name,
            .field = field,
            .block = static_cast<std::int64_t>(placed.number),
            .offset = block.offset,
            .bytes = block.stored_bytes,
            .text = fmt::format("'{}' is damaged: field '{}', block {}, {} bytes at offset {} "
                                "(samples {} to {}): {}",
                                path_.string(),
                                field,
                                placed.number,
                                grouped(block.stored_bytes),
                                grouped(block.offset),
                                grouped(block.first_row),
                                grouped(block.first_row + block.rows - 1),
                                why)};
}

bool BlockCheck::is_intact(const PlacedBlock& placed, std::span<const std::byte> stored) const {
    return !placed.block.is_hashed || hash64(stored) == placed.block.hash;
}

std::optional<Finding> BlockCheck::check(const PlacedBlock& placed,
                                         std::span<const std::byte> stored) {
    const StoredBlock& block = placed.block;
    if (!is_intact(placed, stored))
        return finding(placed,
                       "E213",
                       fmt::format("their XXH3-64 is {}, the index says {}; read twice",
                                   hex64(hash64(stored)),
                                   hex64(block.hash)));
    if (block.codec != Codec::none) {
        decoded_.resize(block.decoded_bytes);
        if (!decoder_.decode(block.codec, stored, decoded_))
            return finding(
                placed, "E213", fmt::format("they are not valid {}", codec_name(block.codec)));
        stored = decoded_;
    }
    const Field& field = manifest_.fields[placed.field];
    return check_labels(placed, stored.first(block.rows * field.bytes_per_sample()));
}

std::optional<Finding> BlockCheck::check_labels(const PlacedBlock& placed,
                                                std::span<const std::byte> rows) const {
    const Field& field = manifest_.fields[placed.field];
    const std::optional<BadLabel> bad = first_bad_label(field, rows);
    if (!bad) return {};
    return finding(
        placed,
        "E210",
        fmt::format("{} of sample {} is out of range; there are {} classes",
                    label_text(field, bad->label),
                    grouped(placed.block.first_row +
                            bad->element * element_bytes(field.type) / field.bytes_per_sample()),
                    field.classes()));
}

}  // namespace lockstep
