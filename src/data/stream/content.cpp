// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/content.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/manifest.hpp"

#include "block_reader.hpp"
#include "format/index_columns.hpp"
#include "request_plan.hpp"

#include <bit>

#include <fmt/format.h>

namespace lockstep {
namespace {

void add_field(ByteWriter& out, const Field& field) {
    out.add(std::string_view(field.name));
    out.add(element_name(field.type));
    out.add(field.shape.size());
    for (const std::int64_t extent : field.shape) out.add(static_cast<std::uint64_t>(extent));
    out.add(std::uint64_t{has_channels_last(field)});
    out.add(static_cast<std::uint64_t>(field.classes()));
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

std::uint64_t content_bytes(const DatasetIndex& index) {
    return index.samples() * index.manifest().bytes_per_sample();
}

void check_reading_memory(const DatasetIndex& index, std::uint64_t allowed) {
    const std::uint64_t needed = BlockReader::buffer_bytes(index);
    check(needed <= allowed,
          "E106",
          fmt::format("reading one block of '{}' needs {}; {} are allowed",
                      index.manifest().name,
                      bytes_text(needed),
                      bytes_text(allowed)),
          "a chunk is always expanded as a whole",
          fmt::format("allow more: --data-memory {}MiB; or pack the data again, in smaller blocks",
                      (needed >> 20) + 1));
}

std::vector<std::int64_t> content_hashes(std::shared_ptr<const DatasetIndex> index,
                                         int part,
                                         int parts) {
    std::vector<std::size_t> places{0};  // where each field's hashes begin
    for (std::size_t f = 0; f < index->fields().size(); ++f)
        places.push_back(places.back() + index->stored_blocks(f).size());
    std::vector<std::int64_t> hashes(places.back());
    ShardFiles files(index);
    BlockReader reader(files);
    for (const FieldBlock& block : blocks_of_part(*index, part, parts)) {
        std::uint64_t hash = hash64({});
        try {
            hash = hash64(reader.read_block(block.field, block.block));
        } catch (const Error& error) {
            if (!is_about_data(error)) throw;
            // What a reader would do about damage is not decided here.
        }
        hashes[places[block.field] + block.block] = std::bit_cast<std::int64_t>(hash);
    }
    return hashes;
}

std::string content_digest(const DatasetIndex& index, std::span<const std::int64_t> hashes) {
    ByteWriter out;
    out.add(std::uint64_t{index.manifest().block_rows});
    for (const Shard& shard : index.shards())
        if (shard.samples > 0) out.add(shard.samples);  // places of values are no content
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        add_field(out, index.fields()[f]);
        for (const StoredBlock& block : index.stored_blocks(f)) out.add(std::uint64_t{block.rows});
    }
    out.add(std::as_bytes(hashes));
    return hash128(std::span<const std::byte>(out.finish())).hex();
}

FileWatch::FileWatch(std::shared_ptr<const DatasetIndex> index) {
    std::vector<bool> lacks(index->shards().size());  // hashes
    for (std::size_t f = 0; f < index->fields().size(); ++f)
        for (const StoredBlock& block : index->stored_blocks(f))
            if (!block.is_hashed && block.shard != kept_in_index) lacks[block.shard] = true;
    for (std::size_t i = 0; i < lacks.size(); ++i) {
        if (!lacks[i]) continue;
        const fs::path path = index->path() / index->shards()[i].name;
        files_.push_back({path, index->stamps().empty() ? file_stamp(path) : index->stamps()[i]});
    }
}

void FileWatch::check() const {
    for (const auto& [path, seen] : files_) {
        lockstep::check(fs::exists(status_of(path)), [&] { return changed(path, "it is gone"); });
        const FileStamp now = file_stamp(path);
        lockstep::check(now == seen, [&] { return changed(path, difference(seen, now)); });
    }
}

}  // namespace lockstep
