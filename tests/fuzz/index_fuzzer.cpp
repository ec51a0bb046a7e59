// SPDX-License-Identifier: Apache-2.0
// libFuzzer: whatever the bytes of an index, of its table in a shard, or of an answer about a
// foreign file are, no block that comes of them lies outside of its file, and each row of labels
// has a text. The first byte chooses.
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/codec.hpp"
#include "format/index_columns.hpp"
#include "hdf5/file_facts.hpp"
#include "hdf5/stored_blocks.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace lockstep {
namespace {

using Bytes = std::span<const std::byte>;

void must(bool holds) {
    if (!holds) std::abort();
}

void check_block(const StoredBlock& block, std::uint64_t file_bytes, std::uint64_t row_bytes) {
    must(block.offset <= file_bytes && block.stored_bytes <= file_bytes - block.offset);
    must(block.stored_bytes >= 1 && block.rows >= 1);
    must(block.rows <= block.decoded_bytes / row_bytes);
    must(block.codec != Codec::none || block.stored_bytes == block.decoded_bytes);
    must(block.codec == Codec::none || block.decoded_bytes <= most_chunk_bytes);
}

// What a row of a chunk holds, with padding.
std::uint64_t chunk_row_elements(const BlockForms& forms,
                                 const StoredBlock& block,
                                 std::uint64_t of_sample) {
    if (block.cut == 0) return of_sample;
    const Cut& cut = forms.cuts.at(block.cut - 1U);
    must(cut.is_sound() && block.tile < cut.tiles());
    return cut.chunk_elements();
}

template <class Action>
void unless_error(Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        must(error.code() != "E700");
    }
}

std::vector<std::byte> sealed_bytes(Bytes bytes) {
    ByteWriter out;
    out.add(bytes);
    return out.finish();
}

// The manifest of one shard with one field, of the four numbers that the input begins with.
std::string manifest_text_of(std::span<const std::uint64_t> numbers, std::uint64_t blocks) {
    constexpr auto codecs = std::to_array({Codec::none, Codec::deflate, Codec::lz4, Codec::zstd});
    Manifest manifest;
    manifest.codec = codecs[numbers[3] % codecs.size()];
    manifest.samples = numbers[1];
    manifest.block_rows = static_cast<std::uint32_t>(numbers[2]);
    manifest.fields = {{.name = "x", .shape = {static_cast<std::int64_t>(numbers[0])}}};
    manifest.shards = {{.name = "a",
                        .bytes = numbers[3],
                        .samples = manifest.samples,
                        .index = {{.blocks = blocks, .field = "x"}}}};
    return manifest_text(manifest);
}

// Whatever manifest and table say: blocks that are taken from them make an index.
void read_table(Bytes bytes) {
    std::array<std::uint64_t, 4> numbers{};
    if (bytes.size() < sizeof numbers) return;
    std::memcpy(numbers.data(), bytes.data(), sizeof numbers);
    const Bytes table = bytes.subspan(sizeof numbers);
    const std::string text = manifest_text_of(numbers, table.size() / index_row_bytes);
    const Manifest manifest = parse_manifest(text, "fuzz");
    auto blocks = parse_index_rows(table, manifest, 0, 0);
    if (!blocks) return;
    for (const StoredBlock& block : *blocks)
        check_block(block, manifest.shards[0].bytes, manifest.bytes_per_sample());
    const auto index = DatasetIndex::of_blocks("/fuzz", text, {std::move(*blocks)});
    try {
        static_cast<void>(DatasetIndex::deserialize(index.serialize()));
    } catch (const Error&) {
        must(false);
    }
}

void read_index(Bytes bytes) {
    const DatasetIndex index = DatasetIndex::deserialize(bytes);
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : index.stored_blocks(f)) {
            const bool is_as_packed =
                block.is_hashed || index.manifest().kind == ManifestKind::foreign;
            const std::uint64_t element = element_bytes(index.fields()[f].type);
            const std::uint64_t row = index.fields()[f].bytes_per_sample() / element;
            check_block(
                block,
                is_as_packed ? index.shards().at(block.shard).bytes : std::uint64_t{1} << 62,
                element * chunk_row_elements(index.forms(), block, row));
            must(filter_fault(index.chain_of(block)).empty());
        }
    must(DatasetIndex::deserialize(index.serialize()) == index);
}

void read_facts(Bytes bytes) {
    const FileFacts facts = facts_from(bytes, 3, 4096);
    for (const DatasetFacts& dataset : facts.datasets) {
        if (dataset.size.empty() || dataset.size[0] < 1 || dataset.size[0] > 4096) continue;
        std::uint64_t elements = 1;  // no overflow: foreign.cpp looks at that
        for (std::size_t d = 1; d < dataset.size.size() && elements <= 4096; ++d)
            elements *= std::clamp<std::uint64_t>(dataset.size[d], 1, 4097);
        if (elements > 4096 || std::ranges::count(dataset.size, 0U) > 0) continue;
        BlockForms forms;
        const FoundBlocks found =
            blocks_of(dataset,
                      {.samples = dataset.size[0], .row_bytes = 8 * elements, .file_bytes = 4096},
                      forms);
        for (const StoredBlock& block : found.blocks)
            check_block(block, 4096, 8 * chunk_row_elements(forms, block, elements));
    }
}

// What the child says that the rows of a column are called, for as many as the first byte says.
void read_texts(Bytes bytes) {
    if (bytes.empty()) return;
    const auto rows = std::to_integer<std::uint64_t>(bytes[0]);
    const Lists texts = lists_from(sealed_bytes(bytes.subspan(1)), rows);
    must(texts.size() == rows);
    must(lists_from(to_bytes(texts), rows) == texts);
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lockstep;
    if (size == 0) return 0;
    const Bytes bytes = std::as_bytes(std::span(data, size)).subspan(1);
    // No fuzzer finds a hash: each also as if the sender had sealed it.
    unless_error([&] {
        switch (data[0] % 7) {
            case 0:
                return read_table(bytes);
            case 1:
                return read_index(bytes);
            case 2:
                return read_index(sealed_bytes(bytes));
            case 3:
                return read_facts(sealed_bytes(bytes));
            case 4:
                static_cast<void>(request_from(sealed_bytes(bytes)));
                break;
            case 5:
                static_cast<void>(rows_request_from(sealed_bytes(bytes)));
                break;
            default:
                read_texts(bytes);
        }
    });
    return 0;
}
