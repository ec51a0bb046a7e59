// SPDX-License-Identifier: Apache-2.0
// A data set behind a link is in a file that the user did not name, and so are the parts of a
// virtual one. Such a file becomes a shard without samples of its own, before the file that names
// it. So its blocks are read, watched and reported like those of any other:
//
//     a.h5   /x -> data-a.h5:/x   /y         shards   data-a.h5 (0)  a.h5 (60)  data-b.h5 (0)  b.h5
//     (60) b.h5   /x -> data-b.h5:/x   /y         of /x    ^                         ^
//                                            of /y                   ^                         ^
//
// What must never happen: a file is opened that the user does not trust. So links are followed only
// where `Links` says so.
#include "lockstep/core/hash.hpp"

#include "foreign.hpp"

#include <chrono>

namespace lockstep {

ByteWriter identity_of(const fs::path& file, std::uint64_t bytes) {
    ByteWriter identity;
    identity.add(bytes);
    const auto time = fs::last_write_time(file).time_since_epoch();
    identity.add(static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(time).count()));
    return identity;
}

// Facts of a linked file belong to the time of its stamp, and a link is only known after one look.
void ForeignOpening::look_again_behind_links() {
    bool has_new = false;
    for (const DatasetFacts& facts : facts_.datasets)
        for (const DatasetFacts& part : facts.stored()) {
            if (part.file.empty()) continue;
            const fs::path file = fs::canonical(part.file);
            if (linked_.try_emplace(file, file_stamp(file)).second) has_new = true;
        }
    if (has_new) facts_ = sandbox_.look(request_);
}

void ForeignOpening::add_shard(const fs::path& file,
                               std::uint64_t samples,
                               const FileStamp& stamp) {
    const bool is_new = known_.insert(file).second;
    if (!is_new)
        throw not_streamable(
            file, mappings_[0].hdf5_path, "several of the files link to it, or it is one", "E205");
    manifest_.shards.push_back({.name = file.string(),
                                .bytes = fs::file_size(file),
                                .samples = samples,
                                .first_sample = manifest_.samples});
    stamps_.push_back(stamp);
}

// Returns the shard of `file`, a link's target; the file's linked shards begin at `first`.
std::uint32_t ForeignOpening::linked_shard(const fs::path& file, std::size_t first) {
    for (std::size_t shard = first; shard < manifest_.shards.size(); ++shard)
        if (manifest_.shards[shard].name == file.string()) return static_cast<std::uint32_t>(shard);
    const auto stamp = linked_.find(file);
    if (stamp == linked_.end())
        throw not_streamable(file,
                             mappings_[0].hdf5_path,
                             "what leads to it changed while it was looked at",
                             "E205");
    add_shard(file, 0, stamp->second);
    Shard& shard = manifest_.shards.back();
    shard.xxh3_128 =
        hash128(std::span<const std::byte>(identity_of(file, shard.bytes).finish())).hex();
    return static_cast<std::uint32_t>(manifest_.shards.size() - 1);
}

// The file, and before it those that its links lead to.
void ForeignOpening::add_shards(std::size_t number) {
    const std::size_t first = manifest_.shards.size();
    const auto& datasets = facts_.datasets;
    std::map<std::string, std::uint32_t> shards;
    for (const DatasetFacts& facts : datasets)
        for (const DatasetFacts& part : facts.stored())
            if (!part.file.empty())
                shards[part.file] = linked_shard(fs::canonical(part.file), first);
    const auto own = static_cast<std::uint32_t>(manifest_.shards.size());
    add_shard(files_[number], datasets[0].size[0], asked_[number]);
    own_shard_.push_back(own);
    shards[""] = own;
    part_shards_.assign(mappings_.size(), {});
    for (std::size_t f = 0; f < mappings_.size(); ++f)
        for (const DatasetFacts& part : datasets[f].stored())
            part_shards_[f].push_back(shards[part.file]);
}

}  // namespace lockstep
