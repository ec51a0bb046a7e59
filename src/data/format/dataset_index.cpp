// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/dataset_index.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"

#include "hdf5/shard_probe.hpp"
#include "index_table.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string rewritten(const Shard& shard) {
    return fmt::format(
        "shard '{}' was rewritten after it was packed: its blocks were found again, but they have "
        "no hashes, so damage to it will go unnoticed; restore it, or pack the data again",
        shard.name);
}

// The blocks of one shard, by field, and whether they come from the index that was packed.
struct OpenedShard {
    std::vector<std::vector<StoredBlock>> blocks;
    std::vector<FilterChain> chains;
    bool is_as_packed = true;
};

OpenedShard open_shard(Sandbox& sandbox,
                       const fs::path& folder,
                       const Manifest& manifest,
                       std::size_t number) {
    const Shard& shard = manifest.shards[number];
    const fs::path path = path_beneath(folder, shard.name);
    check_is_whole_hdf5(path, shard.bytes);
    OpenedShard opened;
    for (std::size_t f = 0; f < manifest.fields.size(); ++f) {
        auto blocks = read_index_table(path, manifest, number, f);
        if (!blocks) break;
        opened.blocks.push_back(std::move(*blocks));
    }
    if (opened.blocks.size() == manifest.fields.size()) return opened;
    ProbedShard probed = probe_untrusted_shard(sandbox, path, manifest, number);
    opened = {{}, std::move(probed.chains), false};
    for (ProbedField& field : probed.fields) opened.blocks.push_back(std::move(field.blocks));
    return opened;
}

}  // namespace

DatasetIndex DatasetIndex::of_blocks(const std::filesystem::path& folder,
                                     const std::string& manifest_text,
                                     std::vector<std::vector<StoredBlock>> blocks,
                                     std::vector<FilterChain> chains) {
    DatasetIndex index;
    index.path_ = fs::absolute(folder).lexically_normal();
    index.manifest_text_ = manifest_text;
    index.manifest_ = parse_manifest(manifest_text, (folder / manifest_name).string());
    index.stored_ = std::move(blocks);
    index.chains_ = std::move(chains);
    return index;
}

DatasetIndex DatasetIndex::open(const std::filesystem::path& folder) {
    DatasetIndex index = of_blocks(folder, read_manifest_text(folder), {});
    index.stored_.resize(index.fields().size());
    Sandbox sandbox;  // whose child is only started if a shard is not what was packed
    for (std::size_t number = 0; number < index.shards().size(); ++number) {
        OpenedShard shard = open_shard(sandbox, folder, index.manifest_, number);
        for (std::size_t f = 0; f < shard.blocks.size(); ++f)
            index.append(f, shard.blocks[f], shard.chains);
        if (!shard.is_as_packed) index.warnings_.push_back(rewritten(index.shards()[number]));
    }
    for (const std::string& warning : index.warnings_) once(Level::warn, "{}", warning);
    return index;
}

void DatasetIndex::append(std::size_t field,
                          std::vector<StoredBlock>& blocks,
                          const std::vector<FilterChain>& chains) {
    // By the number that a chain has in `chains`: its number here.
    std::vector<std::uint16_t> numbers;
    for (const FilterChain& chain : chains) {
        const auto found = std::ranges::find(chains_, chain);
        numbers.push_back(static_cast<std::uint16_t>(found - chains_.begin()));
        if (found == chains_.end()) chains_.push_back(chain);
    }
    for (StoredBlock& block : blocks)
        if (block.codec == Codec::filters) block.chain = numbers.at(block.chain);
    std::ranges::move(blocks, std::back_inserter(stored_[field]));
}

std::size_t DatasetIndex::field_position(std::string_view name) const {
    const auto found = std::ranges::find(fields(), name, &Field::name);
    check(found != fields().end(), [&] {
        std::vector<std::string> names;
        for (const Field& field : fields()) names.push_back(field.name);
        return Error("E207",
                     fmt::format("data set '{}' has no field '{}'", path_.string(), name),
                     fmt::format("its fields are {}", fmt::join(names, ", ")),
                     did_you_mean(name, names));
    });
    return static_cast<std::size_t>(found - fields().begin());
}

const FilterChain& DatasetIndex::chain_of(const StoredBlock& block) const {
    static const FilterChain none, deflate{{FilterKind::deflate}}, lz4{{FilterKind::lz4}},
        zstd{{FilterKind::zstd}};
    switch (block.codec) {
        case Codec::none:
            break;
        case Codec::deflate:
            return deflate;
        case Codec::lz4:
            return lz4;
        case Codec::zstd:
            return zstd;
        case Codec::filters:
            return chains_.at(block.chain);
    }
    return none;
}

std::vector<RowBlock> DatasetIndex::blocks() const {
    if (manifest_.kind == ManifestKind::packed)
        return row_blocks(manifest_.samples, manifest_.block_rows);
    std::vector<RowBlock> blocks;
    for (const Shard& shard : manifest_.shards)
        for (const RowBlock& block : row_blocks(shard.samples, manifest_.block_rows))
            blocks.push_back({shard.first_sample + block.first, block.rows});
    return blocks;
}

}  // namespace lockstep
