// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/pack.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/order.hpp"
#include "lockstep/data/verify.hpp"

#include "hdf5/shard_writer.hpp"
#include "pack_scan.hpp"
#include "workspace.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_shard_bytes = std::uint64_t{512} << 20;
constexpr std::uint64_t usual_block_bytes = std::uint64_t{512} << 10;
constexpr std::uint64_t usual_blocks = 128, fewest_usual_rows = 32;
constexpr std::string_view writer = "lockstep pack 1";

std::string name_of(const PackOptions& options) {
    const fs::path output = fs::absolute(options.output).lexically_normal();
    std::string name = options.name;
    if (name.empty()) name = output.filename().string();
    if (name.empty()) name = output.parent_path().filename().string();
    const bool is_plain = !name.empty() && name[0] != '.' && name[0] != '-' && name.size() <= 200 &&
                          std::ranges::all_of(name, [](unsigned char c) {
                              return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-';
                          });
    check(is_plain, [&] {
        return Error("E102",
                     fmt::format("'{}' cannot be the name of a data set", name),
                     "a name has letters, digits, '.', '_' and '-', and begins with none of '.-'",
                     "give one with --name");
    });
    return name;
}

// The largest power of two of rows that stays below the usual size; smaller for small data, so that
// there are blocks enough to shuffle.
std::uint32_t block_rows_of(const RowSource& source, const PackOptions& options) {
    if (options.block_rows > 0) return options.block_rows;
    std::size_t row_bytes = 1;
    for (const Field& field : source.fields())
        row_bytes = std::max(row_bytes, field.bytes_per_sample());
    std::uint64_t rows = 1;
    while (rows * 2 * row_bytes <= usual_block_bytes) rows *= 2;
    while (rows > fewest_usual_rows && source.samples() / rows < usual_blocks) rows /= 2;
    return static_cast<std::uint32_t>(rows);
}

std::uint64_t raw_bytes_of(const Manifest& manifest) {
    return manifest.samples * manifest.bytes_per_sample();
}

std::size_t shard_count(const Manifest& manifest, int asked) {
    const std::uint64_t blocks = (manifest.samples - 1) / manifest.block_rows + 1;
    check(asked >= 0,
          [&] { return Error("E102", fmt::format("{} shards", asked), "0 = as fits"); });
    if (asked == 0)
        return std::clamp<std::uint64_t>(raw_bytes_of(manifest) / usual_shard_bytes, 1, blocks);
    check(static_cast<std::uint64_t>(asked) <= blocks, [&] {
        return Error("E106",
                     fmt::format("{} shards for {} blocks of {} rows",
                                 asked,
                                 grouped(blocks),
                                 grouped(manifest.block_rows)),
                     "a shard has at least one block",
                     "ask for fewer shards or smaller blocks");
    });
    return static_cast<std::size_t>(asked);
}

// RFC 9562, version 8: made from what it names, so that equal packs are equal.
std::string uuid_of(const Manifest& manifest, const Hash128& content, std::size_t shards) {
    std::string hex =
        hash128(fmt::format("{} {} {}", manifest_text(manifest), content.hex(), shards)).hex();
    hex[12] = '8';
    hex[16] = '8';
    for (const std::size_t dash : {8, 13, 18, 23}) hex.insert(dash, 1, '-');
    return hex;
}

Manifest plan_dataset(const RowSource& source,
                      const PackOptions& options,
                      const PackReport& report) {
    Manifest manifest;
    manifest.name = name_of(options);
    manifest.split = options.split;
    manifest.writer = writer;
    manifest.row_order =
        options.shuffle_seed ? fmt::format("shuffled:{}", *options.shuffle_seed) : "source";
    manifest.codec = options.codec;
    manifest.samples = source.samples();
    manifest.block_rows = block_rows_of(source, options);
    manifest.fields = scan_fields(source, options, report);
    const std::size_t shards = shard_count(manifest, options.shards);
    manifest.uuid = uuid_of(manifest, source.fingerprint(), shards);
    manifest.shards.resize(shards);
    return manifest;
}

std::vector<std::uint64_t> source_rows(std::uint64_t samples, const PackOptions& options) {
    std::vector<std::uint64_t> rows(samples);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    if (options.shuffle_seed)
        shuffle(std::span(rows), CounterRandom(Purpose::pack_order, {*options.shuffle_seed}));
    return rows;
}

void check_space(const Manifest& manifest, const fs::path& folder) {
    const std::uint64_t needed = manifest.codec == Codec::none ? raw_bytes_of(manifest) : 0;
    const std::uint64_t free = free_bytes(folder);
    check(free >= needed, [&] {
        return Error("E403",
                     fmt::format("'{}' has {} free, the data set needs {}",
                                 folder.string(),
                                 bytes_text(free),
                                 bytes_text(needed)),
                     "",
                     "use another file system, or --codec lz4");
    });
}

void write_shards(const RowSource& source,
                  const PackOptions& options,
                  const fs::path& folder,
                  Manifest& manifest,
                  const PackReport& report) {
    const std::vector<std::uint64_t> rows = source_rows(manifest.samples, options);
    const auto row = [&](std::size_t field, std::uint64_t number, std::span<std::byte> out) {
        source.read(field, rows[number], out);
    };
    const auto tell = [&](std::uint64_t done) {
        if (report) report({"write", done, manifest.samples});
    };
    Encoder encoder(options.codec, options.level);
    const std::size_t count = manifest.shards.size();
    const std::uint64_t blocks = (manifest.samples - 1) / manifest.block_rows + 1;
    const auto first_of = [&](std::size_t number) {
        return std::min(manifest.samples, blocks * number / count * manifest.block_rows);
    };
    for (std::size_t i = 0; i < count; ++i) {
        const fs::path path = folder / fmt::format("{}-{:05}-of-{:05}.h5", manifest.name, i, count);
        const std::uint64_t first = first_of(i), last = first_of(i + 1);
        manifest.shards[i] =
            write_shard({manifest, path, i, count, first, last - first}, row, encoder, tell);
    }
}

// Data sets are for sharing: what the umask allows the shards, it allows the manifest.
void write_manifest(const fs::path& folder, const Manifest& manifest) {
    const fs::path path = folder / manifest_name;
    write_file_atomically(path, manifest_text(manifest));
    fs::permissions(path, fs::status(folder / manifest.shards[0].name).permissions());
}

void check_written(const fs::path& folder, const PackReport& report) {
    const auto findings = verify_dataset(folder, [&](const VerifyProgress& progress) {
        if (report) report({"verify", progress.done, progress.total});
    });
    check(findings.empty(), [&] {
        return Error("E213",
                     "what was written reads back differently",
                     findings[0].text,
                     "check this machine's memory and file system, then pack again");
    });
}

}  // namespace

PackResult pack_dataset(const PackOptions& options, const PackReport& report) {
    check_is_free(options.output);
    return pack_dataset(*open_idx(options.images, options.labels), options, report);
}

PackResult pack_dataset(const RowSource& source,
                        const PackOptions& options,
                        const PackReport& report) {
    check_is_free(options.output);
    check(source.samples() > 0, [] { return Error("E214", "the input has no samples"); });
    Manifest manifest = plan_dataset(source, options, report);
    Workspace workspace(options.output);
    check_space(manifest, workspace.path());
    write_shards(source, options, workspace.path(), manifest, report);
    write_manifest(workspace.path(), manifest);
    check_written(workspace.path(), report);
    PackResult result{.path = options.output,
                      .manifest = parse_manifest(manifest_text(manifest), "manifest"),
                      .raw_bytes = raw_bytes_of(manifest),
                      .stored_bytes = 0};
    for (const Shard& shard : manifest.shards) result.stored_bytes += shard.bytes;
    workspace.commit();
    return result;
}

}  // namespace lockstep
