// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/dataset_index.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/shell_word.hpp"

#include "codec.hpp"
#include "index_columns.hpp"
#include "manifest_fields.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>

#include <fmt/format.h>

namespace lockstep {

DatasetIndex DatasetIndex::of_blocks(const fs::path& folder,
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
    for (const Item& item : of) numbers.push_back(static_cast<std::uint16_t>(number_in(all, item)));
    return numbers;
}

using IndexRow = std::array<std::uint64_t, index_row_bytes / 8>;

// Nothing if the file ends early or the hash differs.
std::vector<std::byte> read_rows(const fs::path& path, const IndexPlace& place) {
    const UniqueFd fd = open_for_reading(path);
    // The size of the file bounds the memory, whatever the manifest says.
    const std::uint64_t end = fs::file_size(path);
    if (place.offset > end || place.blocks > (end - place.offset) / index_row_bytes) return {};
    std::vector<std::byte> bytes(place.blocks * index_row_bytes);
    const std::size_t got = read_at(fd.value(), bytes, place.offset, path);
    if (got < bytes.size() || hash64(bytes) != place.hash) bytes.clear();
    return bytes;
}

bool is_sound(const StoredBlock& block,
              const IndexRow& row,
              std::uint64_t first,
              std::uint64_t end) {
    return row[2] == first && block.stored_bytes >= 1 &&
           block.stored_bytes <= block.decoded_bytes && block.offset <= end &&
           block.stored_bytes <= end - block.offset &&
           (block.codec != Codec::none || block.stored_bytes == block.decoded_bytes);
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

void DatasetIndex::finish_joined(Manifest manifest, const std::string& origin) {
    manifest.uuid.clear();
    manifest.uuid = uuid_from(hash128(std::string_view(manifest_text(manifest))).hex());
    manifest_text_ = manifest_text(manifest);
    manifest_ = parse_manifest(manifest_text_, origin, ManifestKind::foreign);
    check_blocks();
}

bool DatasetIndex::operator==(const DatasetIndex& other) const {
    return path_ == other.path_ && manifest_text_ == other.manifest_text_ &&
           manifest_ == other.manifest_ && stored_ == other.stored_ && forms_ == other.forms_ &&
           kept_ == other.kept_ && warnings_ == other.warnings_;
}

DatasetIndex DatasetIndex::with_statistics(const std::vector<Field>& fields) const {
    DatasetIndex index = *this;
    for (Field& field : index.manifest_.fields)
        for (const Field& found : fields)
            if (found.name == field.name) field.mean = found.mean, field.std = found.std;
    return index;
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
                              shell_word((path_ / shards().back().name).string()))
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

SamplePart SamplePart::first(double share) {
    return {Side::first, static_cast<std::uint64_t>(std::ldexp(share, 64))};
}

SamplePart SamplePart::second(double share) {
    return {Side::second, first(share).bound};
}

bool SamplePart::holds(std::uint64_t sample) const {
    if (side == Side::all) return true;
    const bool is_first = hash64(std::as_bytes(std::span(&sample, 1))) < bound;
    return is_first == (side == Side::first);
}

std::vector<RowBlock> blocks_in(std::vector<RowBlock> blocks, const SamplePart& part) {
    if (part.side == SamplePart::Side::all) return blocks;
    for (RowBlock& block : blocks) {
        block.left_out = 0;
        for (std::uint32_t row = 0; row < block.rows; ++row)
            if (!part.holds(block.first + row)) ++block.left_out;
    }
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

std::optional<std::vector<StoredBlock>> parse_index_rows(std::span<const std::byte> bytes,
                                                         const Manifest& manifest,
                                                         std::size_t number,
                                                         std::size_t field) {
    const Shard& shard = manifest.shards[number];
    const std::uint64_t row_bytes = manifest.fields[field].bytes_per_sample();
    const std::uint64_t chunk_rows = std::min<std::uint64_t>(manifest.block_rows, shard.samples);
    const bool is_chunked = manifest.codec != Codec::none;
    const std::uint64_t count = (shard.samples - 1) / manifest.block_rows + 1;
    if (bytes.size() / index_row_bytes != count || bytes.size() % index_row_bytes != 0) return {};
    if (chunk_rows > most_decoded_bytes / row_bytes) return {};
    const std::vector<RowBlock> rows = row_blocks(shard.samples, manifest.block_rows);
    // A codec has the number of its filter.
    const FilterChain filters{{static_cast<FilterKind>(manifest.codec)}};
    std::vector<StoredBlock> blocks;
    blocks.reserve(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
        IndexRow row;
        std::memcpy(row.data(), bytes.data() + i * index_row_bytes, index_row_bytes);
        StoredBlock block{.first_row = shard.first_sample + rows[i].first,
                          .offset = row[0],
                          .stored_bytes = row[1],
                          .decoded_bytes = row_bytes * (is_chunked ? chunk_rows : rows[i].rows),
                          .hash = row[3],
                          .rows = rows[i].rows,
                          .shard = static_cast<std::uint32_t>(number),
                          .codec = manifest.codec,
                          .is_hashed = true};
        // Blocks that would not get smaller are stored as they are.
        if (block.stored_bytes == block.decoded_bytes) block.codec = Codec::none;
        if (!is_sound(block, row, rows[i].first, shard.bytes)) return {};
        if (block.codec != Codec::none &&
            block.decoded_bytes > most_expanded(filters, block.stored_bytes))
            return {};
        blocks.push_back(block);
    }
    return blocks;
}

std::optional<std::vector<StoredBlock>> read_index_rows(const fs::path& path,
                                                        const Manifest& manifest,
                                                        std::size_t number,
                                                        std::size_t field) {
    return parse_index_rows(
        read_rows(path, manifest.shards[number].index[field]), manifest, number, field);
}

}  // namespace lockstep
