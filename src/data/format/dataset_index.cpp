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
    bool is_as_packed = true;
};

OpenedShard open_shard(const fs::path& folder, const Manifest& manifest, std::size_t number) {
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
    opened = {{}, false};
    for (ProbedField& field : probe_shard(path, manifest, number))
        opened.blocks.push_back(std::move(field.blocks));
    return opened;
}

}  // namespace

DatasetIndex DatasetIndex::of_blocks(const std::filesystem::path& folder,
                                     const std::string& manifest_text,
                                     std::vector<std::vector<StoredBlock>> blocks) {
    DatasetIndex index;
    index.path_ = fs::absolute(folder).lexically_normal();
    index.manifest_text_ = manifest_text;
    index.manifest_ = parse_manifest(manifest_text, (folder / manifest_name).string());
    index.stored_ = std::move(blocks);
    return index;
}

DatasetIndex DatasetIndex::open(const std::filesystem::path& folder) {
    DatasetIndex index = of_blocks(folder, read_manifest_text(folder), {});
    index.stored_.resize(index.fields().size());
    for (std::size_t number = 0; number < index.shards().size(); ++number) {
        OpenedShard shard = open_shard(folder, index.manifest_, number);
        for (std::size_t f = 0; f < shard.blocks.size(); ++f)
            std::ranges::move(shard.blocks[f], std::back_inserter(index.stored_[f]));
        if (!shard.is_as_packed) index.warnings_.push_back(rewritten(index.shards()[number]));
    }
    for (const std::string& warning : index.warnings_) once(Level::warn, "{}", warning);
    return index;
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

std::vector<RowBlock> DatasetIndex::blocks() const {
    return row_blocks(manifest_.samples, manifest_.block_rows);
}

}  // namespace lockstep
