// SPDX-License-Identifier: Apache-2.0
#include "shard_probe.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"

#include "driver.hpp"
#include "look.hpp"
#include "stored_blocks.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// The expected form of one data set in a shard, and the place for its errors.
struct Expected {
    const fs::path& path;
    const Manifest& manifest;
    const Shard& shard;
    std::uint32_t number;
};

Error misfit(const Expected& expected, const std::string& why) {
    return Error("E208",
                 fmt::format("'{}' does not belong to data set '{}'",
                             expected.path.string(),
                             expected.manifest.name),
                 why,
                 "put back the shard that was packed with this manifest");
}

void check_number(const std::optional<std::uint64_t>& found,
                  const char* name,
                  std::uint64_t value,
                  const Expected& expected) {
    if (!found) throw misfit(expected, fmt::format("it has no number '{}'", name));
    if (*found != value)
        throw misfit(expected,
                     fmt::format("its {} is {}, not {}", name, grouped(*found), grouped(value)));
}

void check_identity(const FileFacts& facts, const Expected& expected) {
    if (!facts.uuid) throw misfit(expected, "it was not made by 'lockstep data pack'");
    if (*facts.uuid != expected.manifest.uuid)
        throw misfit(expected, "it is a shard of another data set");
    check_number(facts.shard_index, "shard_index", expected.number, expected);
    check_number(facts.samples, "n_samples", expected.shard.samples, expected);
    check_number(facts.first_sample, "first_sample", expected.shard.first_sample, expected);
}

void check_shape(const DatasetFacts& facts, const Field& field, const Expected& expected) {
    check(facts.layout != StorageLayout::missing, [&] {
        return Error("E207",
                     fmt::format("'{}' has no field '{}'", expected.path.string(), field.name),
                     "the manifest names it",
                     "put back the shard that was packed with this manifest");
    });
    std::vector<std::uint64_t> wanted{expected.shard.samples};
    wanted.insert(wanted.end(), field.shape.begin(), field.shape.end());
    if (facts.size != wanted)
        throw misfit(expected,
                     fmt::format("field '{}' is [{}], not [{}]",
                                 field.name,
                                 fmt::join(facts.size, ", "),
                                 fmt::join(wanted, ", ")));
    if (facts.type != field.type)
        throw misfit(expected,
                     fmt::format("field '{}' is not {}", field.name, element_name(field.type)));
}

// 0 unless /index/<field> is a contiguous table of four numbers per block.
std::uint64_t index_offset_of(const DatasetFacts& table, std::size_t blocks) {
    const bool is_table = table.layout == StorageLayout::contiguous &&
                          table.size == std::vector<std::uint64_t>{blocks, 4} &&
                          table.offset != DatasetFacts::nowhere;
    return is_table ? table.offset : 0;
}

FileRequest request_for(const fs::path& path, const Manifest& manifest) {
    FileRequest request{.path = path};
    for (const Field& field : manifest.fields) {
        request.datasets.push_back("/data/" + field.name);
        request.datasets.push_back("/index/" + field.name);
    }
    return request;
}

ProbedShard judged(const FileFacts& facts, const Expected& expected) {
    check_identity(facts, expected);
    ProbedShard probed;
    for (std::size_t f = 0; f < expected.manifest.fields.size(); ++f) {
        const Field& field = expected.manifest.fields[f];
        const DatasetFacts& data = facts.datasets[2 * f];
        check_shape(data, field, expected);
        FoundBlocks found = blocks_of(data,
                                      {.first_sample = expected.shard.first_sample,
                                       .samples = expected.shard.samples,
                                       .row_bytes = field.bytes_per_sample(),
                                       .file_bytes = fs::file_size(expected.path),
                                       .shard = expected.number,
                                       .contiguous_rows = expected.manifest.block_rows},
                                      probed.forms);
        check(found.fault.empty(), [&] {
            return Error(
                "E212",
                fmt::format("field '{}' of '{}' is stored in a way that cannot be streamed",
                            field.name,
                            expected.path.string()),
                found.fault,
                "pack the data again, or undo what rewrote the shard");
        });
        const std::uint64_t table = index_offset_of(facts.datasets[2 * f + 1], found.blocks.size());
        probed.fields.push_back({std::move(found.blocks), table});
    }
    return probed;
}

}  // namespace

ProbedShard probe_shard(const std::filesystem::path& path,
                        const Manifest& manifest,
                        std::size_t number) {
    const Expected expected{
        path, manifest, manifest.shards[number], static_cast<std::uint32_t>(number)};
    check_is_whole_hdf5(path, expected.shard.bytes);
    return judged(look_at_file(request_for(path, manifest)), expected);
}

ProbedShard probe_untrusted_shard(Sandbox& sandbox,
                                  const std::filesystem::path& path,
                                  const Manifest& manifest,
                                  std::size_t number) {
    const Expected expected{
        path, manifest, manifest.shards[number], static_cast<std::uint32_t>(number)};
    check_is_whole_hdf5(path, expected.shard.bytes);
    return judged(sandbox.look(request_for(path, manifest)), expected);
}

}  // namespace lockstep
