// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/index_table.hpp"
#include "hdf5/shard_probe.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// A manifest may announce anything.
constexpr std::uint64_t most_reserved = std::uint64_t{1} << 24;

std::string rewritten(const Shard& shard) {
    return fmt::format(
        "shard '{}' was rewritten after it was packed: its blocks were found again, but they have "
        "no hashes, so damage to it will go unnoticed; restore it, or pack the data again",
        shard.name);
}

// The blocks of one shard, by field, and whether they come from the index that was packed.
struct OpenedShard {
    std::vector<std::vector<StoredBlock>> blocks;
    BlockForms forms;
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
    opened = {{}, std::move(probed.forms), false};
    for (ProbedField& field : probed.fields) opened.blocks.push_back(std::move(field.blocks));
    return opened;
}

}  // namespace

DatasetIndex DatasetIndex::open(const std::filesystem::path& folder) {
    DatasetIndex index = of_blocks(folder, read_manifest_text(folder), {});
    index.stored_.resize(index.fields().size());
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        std::uint64_t blocks = 0;
        for (const Shard& shard : index.shards()) blocks += shard.index[f].blocks;
        index.stored_[f].reserve(std::min(blocks, most_reserved));
    }
    Sandbox sandbox;  // its child starts only if a shard differs from the packed one
    for (std::size_t number = 0; number < index.shards().size(); ++number) {
        index.stamps_.push_back(file_stamp(path_beneath(folder, index.shards()[number].name)));
        OpenedShard shard = open_shard(sandbox, folder, index.manifest_, number);
        for (std::size_t f = 0; f < shard.blocks.size(); ++f)
            index.append(f, shard.blocks[f], shard.forms);
        if (!shard.is_as_packed) index.warnings_.push_back(rewritten(index.shards()[number]));
    }
    index.check_blocks();
    for (const std::string& warning : index.warnings_) once(Level::warn, "{}", warning);
    return index;
}

}  // namespace lockstep
