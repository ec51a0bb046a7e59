// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/file_watch.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<bool> shards_without_hashes(const DatasetIndex& index) {
    std::vector<bool> lacks(index.shards().size());
    for (std::size_t f = 0; f < index.fields().size(); ++f)
        for (const StoredBlock& block : index.stored_blocks(f))
            if (!block.is_hashed && block.shard != kept_in_index) lacks[block.shard] = true;
    return lacks;
}

std::string difference(const FileStamp& seen, const FileStamp& now) {
    if (now.bytes != seen.bytes)
        return fmt::format("it had {} bytes, and has {}", grouped(seen.bytes), grouped(now.bytes));
    return now.inode != seen.inode ? "another file has its name" : "it was written again";
}

Error changed(const fs::path& path, const std::string& how) {
    return Error(
        "E251",
        fmt::format("'{}' changed while it was in use", path.string()),
        how + "; its blocks have no hashes, so what was read of it since is anybody's guess",
        "restore the old file and resume from the last checkpoint, with --accept-data if it has "
        "another time now; or begin a new run with the new data");
}

}  // namespace

FileWatch::FileWatch(std::shared_ptr<const DatasetIndex> index) {
    const std::vector<bool> lacks = shards_without_hashes(*index);
    for (std::size_t i = 0; i < lacks.size(); ++i) {
        if (!lacks[i]) continue;
        const fs::path path = index->path() / index->shards()[i].name;
        files_.push_back({path, index->stamps().empty() ? file_stamp(path) : index->stamps()[i]});
    }
}

void FileWatch::check() const {
    for (const auto& [path, seen] : files_) {
        std::error_code failed;
        lockstep::check(fs::exists(path, failed), [&] { return changed(path, "it is gone"); });
        const FileStamp now = file_stamp(path);
        lockstep::check(now == seen, [&] { return changed(path, difference(seen, now)); });
    }
}

}  // namespace lockstep
