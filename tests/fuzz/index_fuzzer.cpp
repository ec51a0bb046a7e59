// SPDX-License-Identifier: Apache-2.0
// libFuzzer: whatever the bytes of an index, of its table in a shard, or of an answer about a
// foreign file are, no block that comes of them lies outside of its file. The first byte chooses.
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/index_columns.hpp"
#include "format/index_table.hpp"
#include "hdf5/file_facts.hpp"
#include "hdf5/stored_blocks.hpp"

#include <cstdlib>

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

void read_table(Bytes bytes) {
    Manifest manifest;
    manifest.codec = bytes.size() % 64 == 0 ? Codec::none : Codec::lz4;
    manifest.samples = bytes.size() / index_row_bytes * 4;
    manifest.block_rows = 4;
    manifest.fields = {{.name = "x", .shape = {8}}};
    manifest.shards = {{.name = "a", .bytes = 4096, .samples = manifest.samples}};
    if (manifest.samples == 0) return;
    const auto blocks = parse_index_rows(bytes, manifest, 0, 0);
    if (!blocks) return;
    for (const StoredBlock& block : *blocks) check_block(block, 4096, 8);
}

void read_index(Bytes bytes) {
    const DatasetIndex index = DatasetIndex::deserialize(bytes);
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : index.stored_blocks(f)) {
            check_block(
                block, index.shards().at(block.shard).bytes, index.fields()[f].bytes_per_sample());
            must(filter_fault(index.chain_of(block)).empty());
        }
    must(DatasetIndex::deserialize(index.serialize()) == index);
}

void read_facts(Bytes bytes) {
    const FileFacts facts = facts_from(bytes, 4096);
    for (const DatasetFacts& dataset : facts.datasets) {
        if (dataset.size.empty() || dataset.size[0] < 1 || dataset.size[0] > 4096) continue;
        std::vector<FilterChain> chains;
        const FoundBlocks found = blocks_of(
            dataset, {.samples = dataset.size[0], .row_bytes = 8, .file_bytes = 4096}, chains);
        for (const StoredBlock& block : found.blocks) check_block(block, 4096, 8);
    }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace lockstep;
    if (size == 0) return 0;
    const Bytes bytes = std::as_bytes(std::span(data, size)).subspan(1);
    // No fuzzer finds a hash: each also as if the sender had sealed it.
    unless_error([&] {
        switch (data[0] % 5) {
            case 0:
                return read_table(bytes);
            case 1:
                return read_index(bytes);
            case 2:
                return read_index(sealed_bytes(bytes));
            case 3:
                return read_facts(sealed_bytes(bytes));
            default:
                static_cast<void>(request_from(sealed_bytes(bytes)));
        }
    });
    return 0;
}
