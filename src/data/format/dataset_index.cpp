// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/dataset_index.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/manifest.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include <fmt/format.h>

namespace lockstep {

DatasetIndex DatasetIndex::of_blocks(const std::filesystem::path& folder,
                                     const std::string& manifest_text,
                                     std::vector<std::vector<StoredBlock>> blocks,
                                     BlockForms forms,
                                     ManifestKind kind) {
    DatasetIndex index;
    index.path_ = fs::absolute(folder).lexically_normal();
    index.manifest_text_ = manifest_text;
    index.manifest_ = parse_manifest(manifest_text, (folder / manifest_name).string(), kind);
    index.stored_ = std::move(blocks);
    index.forms_ = std::move(forms);
    return index;
}

namespace {

// By the number that an item has in `of`: its number in `all`, which gets what it lacks.
template <class Item>
std::vector<std::uint16_t> numbers_in(std::vector<Item>& all, const std::vector<Item>& of) {
    std::vector<std::uint16_t> numbers;
    for (const Item& item : of) {
        const auto found = std::ranges::find(all, item);
        numbers.push_back(static_cast<std::uint16_t>(found - all.begin()));
        if (found == all.end()) all.push_back(item);
    }
    return numbers;
}

}  // namespace

void DatasetIndex::append(std::size_t field,
                          std::vector<StoredBlock>& blocks,
                          const BlockForms& forms) {
    const auto chains = numbers_in(forms_.chains, forms.chains);
    const auto cuts = numbers_in(forms_.cuts, forms.cuts);
    for (StoredBlock& block : blocks) {
        if (block.codec == Codec::filters) block.chain = chains.at(block.chain);
        if (block.cut != 0) block.cut = static_cast<std::uint16_t>(cuts.at(block.cut - 1U) + 1);
    }
    stored_[field].insert(stored_[field].end(), blocks.begin(), blocks.end());
}

bool DatasetIndex::operator==(const DatasetIndex& other) const {
    return path_ == other.path_ && manifest_text_ == other.manifest_text_ &&
           manifest_ == other.manifest_ && stored_ == other.stored_ && forms_ == other.forms_ &&
           kept_ == other.kept_ && warnings_ == other.warnings_;
}

std::string DatasetIndex::place() const {
    const bool is_one_file = manifest_.kind == ManifestKind::foreign && shards().size() == 1;
    return (is_one_file ? path_ / shards()[0].name : path_).string();
}

std::size_t DatasetIndex::field_position(std::string_view name) const {
    const auto found = std::ranges::find(fields(), name, &Field::name);
    check(found != fields().end(), [&] {
        std::vector<std::string> names;
        for (const Field& field : fields()) names.push_back(field.name);
        const std::string meant = did_you_mean(name, names);
        const bool is_foreign = manifest_.kind == ManifestKind::foreign;
        return Error(
            "E207",
            fmt::format("data set '{}' has no field '{}'", place(), name),
            fmt::format("its fields are {}", fmt::join(names, ", ")),
            !meant.empty() ? meant
            : is_foreign
                ? fmt::format("add --field {}=/PATH; 'lockstep data inspect {}' shows which "
                              "there are",
                              name,
                              shell_word((path_ / shards()[0].name).string()))
                : fmt::format("for a command that trains on them: lockstep data inspect {}",
                              shell_word(path_.string())));
    });
    return static_cast<std::size_t>(found - fields().begin());
}

const FilterChain& DatasetIndex::chain_of(const StoredBlock& block) const {
    if (block.codec == Codec::filters) return forms_.chains.at(block.chain);
    static const std::map<Codec, FilterChain> chains{{Codec::none, {}},
                                                     {Codec::deflate, {{FilterKind::deflate}}},
                                                     {Codec::lz4, {{FilterKind::lz4}}},
                                                     {Codec::zstd, {{FilterKind::zstd}}}};
    return chains.at(block.codec);
}

std::uint64_t DatasetIndex::row_bytes_of(std::size_t field, const StoredBlock& block) const {
    const Cut* const cut = cut_of(block);
    return cut ? cut->elements_of(block.tile) * element_bytes(fields()[field].type)
               : fields()[field].bytes_per_sample();
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

namespace {

SamplePart side_of(SamplePart::Side side, double share) {
    return {side, static_cast<std::uint64_t>(std::ldexp(share, 64))};
}

std::uint32_t rows_outside(const RowBlock& block, const SamplePart& part) {
    std::uint32_t outside = 0;
    for (std::uint32_t row = 0; row < block.rows; ++row)
        outside += part.holds(block.first + row) ? 0 : 1;
    return outside;
}

}  // namespace

SamplePart SamplePart::first(double share) {
    return side_of(Side::first, share);
}

SamplePart SamplePart::second(double share) {
    return side_of(Side::second, share);
}

bool SamplePart::holds(std::uint64_t sample) const {
    if (side == Side::all) return true;
    const bool is_first = hash64(std::as_bytes(std::span(&sample, 1))) < bound;
    return is_first == (side == Side::first);
}

std::vector<RowBlock> blocks_in(std::vector<RowBlock> blocks, const SamplePart& part) {
    if (part.side == SamplePart::Side::all) return blocks;
    for (RowBlock& block : blocks) block.left_out = rows_outside(block, part);
    std::erase_if(blocks, [](const RowBlock& block) { return block.used() == 0; });
    return blocks;
}

std::uint64_t samples_in(const std::vector<RowBlock>& blocks, const SamplePart& part) {
    std::uint64_t samples = 0;
    for (const RowBlock& block : blocks_in(blocks, part)) samples += block.used();
    return samples;
}

std::vector<RowBlock> row_blocks(std::uint64_t samples, std::uint32_t block_rows) {
    std::vector<RowBlock> blocks;
    blocks.reserve((samples + block_rows - 1) / block_rows);
    for (std::uint64_t first = 0; first < samples; first += block_rows) {
        const auto rows = std::min<std::uint64_t>(block_rows, samples - first);
        blocks.push_back({first, static_cast<std::uint32_t>(rows)});
    }
    return blocks;
}

}  // namespace lockstep
