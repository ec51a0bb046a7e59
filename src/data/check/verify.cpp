// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/verify.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "format/index_table.hpp"
#include "hdf5/shard_probe.hpp"
#include "hdf5/shard_writer.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string sentence(const Error& error) {
    return error.why().empty() ? error.what() : fmt::format("{}: {}", error.what(), error.why());
}

// One pass over a data set.
class Verification {
  public:
    Verification(fs::path folder, std::string manifest_text, const VerifyReport& report)
        : folder_(std::move(folder)), manifest_text_(std::move(manifest_text)), report_(report) {}

    std::vector<Finding> run();

  private:
    void verify_shard(std::size_t number);
    void verify_content(std::size_t number, const fs::path& path);
    void verify_blocks(const std::vector<std::vector<StoredBlock>>& blocks);
    void verify_structure(std::size_t number,
                          const fs::path& path,
                          const std::vector<std::vector<StoredBlock>>& blocks);
    std::vector<std::vector<StoredBlock>> indexes_of(std::size_t number, const fs::path& path);

    void add(Finding finding) { findings_.push_back(std::move(finding)); }
    void add(const Error& error, const std::string& file) {
        add({.code = error.code(), .file = file, .field = {}, .text = sentence(error)});
    }
    void tell(const std::string& file, std::uint64_t done_in_shard) {
        if (report_) report_({done_ + done_in_shard, total_, file});
    }

    fs::path folder_;
    std::string manifest_text_;
    const VerifyReport& report_;
    Manifest manifest_;
    std::vector<Finding> findings_;
    std::uint64_t done_ = 0, total_ = 0;
};

std::vector<Finding> Verification::run() {
    const std::string file(manifest_name);
    try {
        manifest_ = parse_manifest(manifest_text_, (folder_ / file).string());
    } catch (const Error& error) {
        add(error, file);
        return findings_;
    }
    for (const Shard& shard : manifest_.shards) total_ += 2 * shard.bytes;
    for (std::size_t number = 0; number < manifest_.shards.size(); ++number) {
        const Shard& shard = manifest_.shards[number];
        try {
            verify_shard(number);
        } catch (const Error& error) {
            add(error, shard.name);
        }
        done_ += 2 * shard.bytes;
        tell(shard.name, 0);
    }
    return findings_;
}

void Verification::verify_shard(std::size_t number) {
    const Shard& shard = manifest_.shards[number];
    const fs::path path = path_beneath(folder_, shard.name);
    const std::uint64_t bytes = open_for_reading(path) ? fs::file_size(path) : 0;
    if (bytes != shard.bytes)
        add({.code = bytes < shard.bytes ? "E204" : "E213",
             .file = shard.name,
             .field = {},
             .offset = std::min(bytes, shard.bytes),
             .bytes = std::max(bytes, shard.bytes) - std::min(bytes, shard.bytes),
             .text = fmt::format("'{}' has {} bytes; {} were written",
                                 path.string(),
                                 grouped(bytes),
                                 grouped(shard.bytes))});
    verify_content(number, path);
}

void Verification::verify_content(std::size_t number, const fs::path& path) {
    const Shard& shard = manifest_.shards[number];
    const std::size_t before = findings_.size();
    const std::string hash =
        file_hash(path, [&](std::uint64_t done) { tell(shard.name, std::min(done, shard.bytes)); });
    const auto blocks = indexes_of(number, path);
    verify_blocks(blocks);
    if (hash == shard.xxh3_128) return verify_structure(number, path, blocks);
    if (findings_.size() == before)
        add({.code = "E213",
             .file = shard.name,
             .field = {},
             .text = fmt::format("'{}' is damaged outside of its blocks, where HDF5 keeps its own "
                                 "structures: its XXH3-128 is {}, the manifest says {}",
                                 path.string(),
                                 hash,
                                 shard.xxh3_128)});
}

std::vector<std::vector<StoredBlock>> Verification::indexes_of(std::size_t number,
                                                               const fs::path& path) {
    const Shard& shard = manifest_.shards[number];
    std::vector<std::vector<StoredBlock>> all;
    for (std::size_t f = 0; f < manifest_.fields.size(); ++f) {
        auto blocks = read_index_rows(path, manifest_, number, f);
        const IndexPlace& place = shard.index[f];
        if (!blocks)
            add({.code = "E213",
                 .file = shard.name,
                 .field = manifest_.fields[f].name,
                 .offset = place.offset,
                 .bytes = place.blocks * index_row_bytes,
                 .text = fmt::format("'{}' is damaged: the index of field '{}', {} bytes at offset "
                                     "{}, does not match its hash",
                                     path.string(),
                                     manifest_.fields[f].name,
                                     grouped(place.blocks * index_row_bytes),
                                     grouped(place.offset))});
        all.push_back(blocks.value_or(std::vector<StoredBlock>{}));
    }
    return all;
}

void Verification::verify_blocks(const std::vector<std::vector<StoredBlock>>& blocks) {
    const auto index = std::make_shared<const DatasetIndex>(
        DatasetIndex::of_blocks(folder_, manifest_text_, blocks));
    ShardFiles files(index);
    BlockReader reader(files);
    std::uint64_t read = 0;
    for (std::size_t f = 0; f < blocks.size(); ++f)
        for (std::size_t b = 0; b < blocks[f].size(); ++b) {
            const StoredBlock& block = blocks[f][b];
            const Shard& shard = manifest_.shards[block.shard];
            try {
                reader.read_block(f, b);
            } catch (const Error& error) {
                add({.code = error.code(),
                     .file = shard.name,
                     .field = manifest_.fields[f].name,
                     .block = static_cast<std::int64_t>(b),
                     .offset = block.offset,
                     .bytes = block.stored_bytes,
                     .text = sentence(error)});
            }
            read += block.stored_bytes;
            if (b % 64 == 0) tell(shard.name, shard.bytes + read);
        }
}

// Only for files whose every byte is right: what libhdf5 sees is what the index says.
void Verification::verify_structure(std::size_t number,
                                    const fs::path& path,
                                    const std::vector<std::vector<StoredBlock>>& blocks) {
    const std::vector<ProbedField> probed = probe_shard(path, manifest_, number);
    for (std::size_t f = 0; f < blocks.size(); ++f) {
        const bool agrees = std::ranges::equal(
            probed[f].blocks, blocks[f], [](const StoredBlock& seen, const StoredBlock& said) {
                return seen.offset == said.offset && seen.stored_bytes == said.stored_bytes &&
                       seen.rows == said.rows && seen.codec == said.codec;
            });
        if (!agrees)
            add({.code = "E208",
                 .file = manifest_.shards[number].name,
                 .field = manifest_.fields[f].name,
                 .text = fmt::format("'{}': HDF5 sees other blocks of field '{}' than the index",
                                     path.string(),
                                     manifest_.fields[f].name)});
    }
}

}  // namespace

std::vector<Finding> verify_dataset(const std::filesystem::path& folder,
                                    const VerifyReport& report) {
    return Verification(folder, read_manifest_text(folder), report).run();
}

}  // namespace lockstep
