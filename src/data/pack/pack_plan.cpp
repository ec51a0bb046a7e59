// SPDX-License-Identifier: Apache-2.0
#include "pack_plan.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/order.hpp"

#include "format/codec.hpp"
#include "format/naming.hpp"
#include "pack_scan.hpp"

#include <algorithm>
#include <cctype>
#include <numeric>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t usual_shard_bytes = std::uint64_t{512} << 20;
constexpr std::uint64_t usual_block_bytes = std::uint64_t{512} << 10;
constexpr std::uint64_t usual_blocks = 128, fewest_usual_rows = 32;
constexpr std::string_view pack_writer = "lockstep pack 1";

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

}  // namespace

std::uint64_t raw_bytes_of(const Manifest& manifest) {
    return manifest.samples * manifest.bytes_per_sample();
}

std::string uuid_of(Manifest manifest, const std::string& content) {
    const std::size_t shards = manifest.shards.size();
    manifest.shards.clear();
    manifest.uuid.clear();
    return uuid_from(
        hash128(fmt::format("{} {} {}", manifest_text(manifest), content, shards)).hex());
}

Manifest outline(const RowSource& source, const PackOptions& options) {
    check(source.samples() > 0, [] { return Error("E214", "the input has no samples"); });
    check_classes(options);
    Manifest manifest;
    manifest.name = name_of(options);
    manifest.split = options.split;
    manifest.writer = pack_writer;
    manifest.row_order = options.shuffle_seed ? fmt::format("shuffled:{}", *options.shuffle_seed)
                                              : source.row_order();
    manifest.codec = options.codec;
    manifest.samples = source.samples();
    manifest.block_rows = block_rows_of(source, options);
    manifest.fields = source.fields();
    const std::size_t count = shard_count(manifest, options.shards);
    const std::uint64_t blocks = (manifest.samples - 1) / manifest.block_rows + 1;
    for (std::size_t i = 0; i < count; ++i) {
        const auto first_of = [&](std::uint64_t shard) {
            return std::min(manifest.samples, blocks * shard / count * manifest.block_rows);
        };
        Shard shard;
        shard.name = fmt::format("{}-{:05}-of-{:05}.h5", manifest.name, i, count);
        shard.first_sample = first_of(i);
        shard.samples = first_of(i + 1) - first_of(i);
        manifest.shards.push_back(std::move(shard));
    }
    return manifest;
}

Json identity_of(const Manifest& manifest, const PackOptions& options, const std::string& content) {
    return {{"writer", manifest.writer},
            {"name", manifest.name},
            {"split", manifest.split},
            {"row order", manifest.row_order},
            {"codec", codec_name(manifest.codec)},
            {"level", Encoder(options.codec, options.level).level()},
            {"samples", manifest.samples},
            {"block rows", manifest.block_rows},
            {"shards", manifest.shards.size()},
            {"classes", options.classes},
            {"class names", options.class_names},
            {"input", content}};
}

std::vector<std::uint64_t> source_rows(std::uint64_t samples, const PackOptions& options) {
    if (!options.shuffle_seed) return {};
    std::vector<std::uint64_t> rows(samples);
    std::iota(rows.begin(), rows.end(), std::uint64_t{0});
    shuffle(std::span(rows), CounterRandom(Purpose::pack_order, {*options.shuffle_seed}));
    return rows;
}

}  // namespace lockstep
