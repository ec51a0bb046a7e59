// SPDX-License-Identifier: Apache-2.0
#include "manifest_fields.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "expansion.hpp"
#include "naming.hpp"

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string_view format_name(ManifestKind kind) {
    return kind == ManifestKind::packed ? "lockstep-dataset" : "lockstep-foreign";
}

constexpr std::uint64_t max_sample_bytes = std::uint64_t{1} << 40;

Error nonsense(const std::string& origin, const std::string& why) {
    return Error("E222",
                 fmt::format("'{}' is not a valid manifest of a data set", origin),
                 why,
                 "restore it from its source; do not edit it");
}

std::optional<ElementType> parse_element(std::string_view name) {
    using enum ElementType;
    for (const ElementType type : {u8, i32, i64, f32, f64})
        if (element_name(type) == name) return type;
    return {};
}

std::optional<std::uint64_t> parse_hex64(std::string_view text) {
    const bool is_hex = text.size() == 16 && std::ranges::all_of(text, [](unsigned char c) {
                            return std::isxdigit(c) != 0;
                        });
    if (!is_hex) return {};
    return std::stoull(std::string(text), nullptr, 16);
}

// A shard as its manifest has it: its index names the fields.
struct NamedPlace {
    std::string field;
    IndexPlace place;
};

void describe(Record& record, NamedPlace& named) {
    record.field("field", named.field);
    record.count("offset", named.place.offset);
    record.count("blocks", named.place.blocks);
    record.text("xxh3_64", named.place.hash, hex64, parse_hex64, "16 hexadecimal digits");
}

struct ShardEntry {
    Shard shard;
    std::vector<NamedPlace> index;
};

void describe(Record& record, ShardEntry& entry) {
    record.field("path", entry.shard.name);
    record.count("bytes", entry.shard.bytes);
    record.count("samples", entry.shard.samples);
    record.count("first_sample", entry.shard.first_sample);
    record.field("xxh3_128", entry.shard.xxh3_128);
    record.field("index", entry.index);
}

ShardEntry entry_of(const Shard& shard, const std::vector<Field>& fields) {
    ShardEntry entry{shard, {}};
    for (std::size_t f = 0; f < shard.index.size(); ++f)
        entry.index.push_back({fields[f].name, shard.index[f]});
    return entry;
}

Shard shard_of(ShardEntry entry, const std::vector<Field>& fields, const std::string& origin) {
    Shard shard = std::move(entry.shard);
    for (const NamedPlace& named : entry.index) {
        const std::size_t f = shard.index.size();
        if (f >= fields.size() || named.field != fields[f].name)
            throw nonsense(origin, fmt::format("the index of '{}' names other fields", shard.name));
        shard.index.push_back(named.place);
    }
    return shard;
}

}  // namespace

void describe(Record& record, Field& field) {
    record.field("name", field.name);
    record.text("type", field.type, element_name, parse_element, "an element type");
    record.field("shape", field.shape);
    record.sparse("layout", field.layout);
    record.sparse("mean", field.mean);
    record.sparse("std", field.std);
    record.sparse("class_counts", field.class_counts);
    record.sparse("class_names", field.class_names);
    record.sparse("columns", field.columns);
    record.sparse("source", field.source);
}

Json shard_json(const Shard& shard, const std::vector<Field>& fields) {
    return json_of_record(entry_of(shard, fields));
}

Shard shard_from_json(const Json& json,
                      const std::vector<Field>& fields,
                      const std::string& origin) {
    return shard_of(record_from_json<ShardEntry>(json, origin), fields, origin);
}

namespace {

void check_field(const Field& field, const std::string& origin) {
    if (!is_field_name(field.name))
        throw nonsense(origin, "a field's name has other signs than letters and digits");
    std::uint64_t bytes = element_bytes(field.type);
    for (const std::int64_t size : field.shape) {
        if (size < 1 || static_cast<std::uint64_t>(size) > max_sample_bytes / bytes)
            throw nonsense(origin, fmt::format("field '{}' has an impossible shape", field.name));
        bytes *= static_cast<std::uint64_t>(size);
    }
    if (field.mean.size() != field.std.size())
        throw nonsense(origin, fmt::format("field '{}' has means without deviations", field.name));
    if (!field.class_names.empty() && field.class_names.size() != field.class_counts.size())
        throw nonsense(origin, fmt::format("field '{}' has other names than classes", field.name));
    if (field.columns.empty()) return;
    std::size_t letters = 0;
    for (const std::string& name : field.columns) letters += name.size();
    const bool has_each = field.shape.size() == 1 &&
                          field.columns.size() == static_cast<std::uint64_t>(field.shape[0]);
    if (!has_each || letters > most_column_bytes)
        throw nonsense(origin, fmt::format("field '{}' has other names than columns", field.name));
}

}  // namespace

namespace {

// A shard's index lies within its file and has one row per block.
void check_places(const Shard& shard, const Manifest& manifest, const std::string& origin) {
    if (manifest.kind == ManifestKind::foreign && shard.index.empty()) return;
    const std::uint64_t blocks = (shard.samples + manifest.block_rows - 1) / manifest.block_rows;
    const bool fits = std::ranges::all_of(shard.index, [&](const IndexPlace& place) {
        return place.blocks == blocks && place.offset <= shard.bytes &&
               place.blocks <= (shard.bytes - place.offset) / 32;
    });
    if (!fits || shard.index.size() != manifest.fields.size())
        throw nonsense(origin, fmt::format("the index of '{}' does not fit it", shard.name));
}

// Uncompressed blocks need their size in the file; compressed ones are chunks of HDF5.
void check_block_sizes(const Shard& shard, const Manifest& manifest, const std::string& origin) {
    if (manifest.kind == ManifestKind::foreign) return;
    const std::uint64_t rows = std::min<std::uint64_t>(manifest.block_rows, shard.samples);
    const std::uint64_t most = manifest.codec == Codec::none ? shard.bytes : most_chunk_bytes;
    for (const Field& field : manifest.fields)
        if (rows > most / field.bytes_per_sample())
            throw nonsense(origin,
                           fmt::format("blocks of {} samples of field '{}' have more than {} bytes",
                                       grouped(rows),
                                       field.name,
                                       grouped(most)));
}

void check_shards(const Manifest& manifest, const std::string& origin) {
    std::uint64_t next = 0;
    std::set<std::string> names;
    for (const Shard& shard : manifest.shards) {
        const bool is_last = &shard == &manifest.shards.back();
        const bool may_be_linked = manifest.kind == ManifestKind::foreign && !is_last;
        const bool fits = (shard.samples >= 1 || may_be_linked) &&
                          shard.samples <= manifest.samples - next && shard.first_sample == next &&
                          (is_last || manifest.kind == ManifestKind::foreign ||
                           shard.samples % manifest.block_rows == 0);
        if (!fits) throw nonsense(origin, fmt::format("shard '{}' has wrong samples", shard.name));
        if (!names.insert(shard.name).second)
            throw nonsense(origin, fmt::format("shard '{}' is there twice", shard.name));
        check_places(shard, manifest, origin);
        check_block_sizes(shard, manifest, origin);
        next += shard.samples;
    }
    if (next != manifest.samples)
        throw nonsense(
            origin,
            fmt::format(
                "its shards have {} of {} samples", grouped(next), grouped(manifest.samples)));
}

void check_whole(const Manifest& manifest, const std::string& origin) {
    if (manifest.samples < 1 || manifest.samples > most_samples)
        throw nonsense(origin, fmt::format("{} samples", grouped(manifest.samples)));
    std::set<std::string> names;
    for (const Field& field : manifest.fields) {
        check_field(field, origin);
        if (!names.insert(field.name).second)
            throw nonsense(origin, fmt::format("field '{}' is there twice", field.name));
    }
    if (manifest.fields.empty()) throw nonsense(origin, "it has no fields");
    check_shards(manifest, origin);
}

void check_format(const Record& record, ManifestKind kind, std::string_view format) {
    if (format != format_name(kind))
        throw nonsense(record.origin(), fmt::format("its format is '{}'", printable(format)));
}

std::uint32_t block_rows_of(const Record& record, std::uint64_t rows) {
    if (rows < 1 || rows > 0x7fffffff)
        throw nonsense(record.origin(), fmt::format("blocks of {} rows", rows));
    return static_cast<std::uint32_t>(rows);
}

std::optional<Codec> parse_stored_codec(std::string_view name, ManifestKind kind) {
    using enum Codec;
    for (const Codec codec : {none, deflate, lz4, zstd})
        if (codec_name(codec) == name) return codec;
    if (kind == ManifestKind::foreign && name == codec_name(filters)) return filters;
    return {};
}

std::vector<ShardEntry> entries_of(const Manifest& manifest) {
    std::vector<ShardEntry> entries;
    for (const Shard& shard : manifest.shards) entries.push_back(entry_of(shard, manifest.fields));
    return entries;
}

}  // namespace

// Reads or writes the file's members; `kind` is known before.
void describe(Record& record, Manifest& manifest) {
    const ManifestKind kind = manifest.kind;
    std::string format(format_name(kind));
    record.field("format", format);
    check_format(record, kind, format);
    record.version("format_version", manifest_format_version);
    record.field("name", manifest.name);
    record.field("split", manifest.split);
    record.field("uuid", manifest.uuid);
    record.field("writer", manifest.writer);
    record.field("row_order", manifest.row_order);
    const auto parse_codec = [=](std::string_view name) { return parse_stored_codec(name, kind); };
    record.text("codec", manifest.codec, codec_name, parse_codec, "a codec");
    record.count("samples", manifest.samples);
    std::uint64_t block_rows = manifest.block_rows;
    record.field("block_rows", block_rows);
    if (record.is_reading()) manifest.block_rows = block_rows_of(record, block_rows);
    record.field("fields", manifest.fields);
    auto entries = entries_of(manifest);
    record.field("shards", entries);
    if (!record.is_reading()) return;
    for (ShardEntry& entry : entries)
        manifest.shards.push_back(shard_of(std::move(entry), manifest.fields, record.origin()));
}

std::string printable_digest(const std::string& digest) {
    const bool is_digest = digest.size() == 32 && std::ranges::all_of(digest, [](unsigned char c) {
                               return std::isxdigit(c) != 0;
                           });
    return is_digest ? digest : fmt::format("{} characters that are no digest", digest.size());
}

Json manifest_json(const Manifest& manifest) {
    return json_of_record(manifest);
}

Manifest manifest_from_json(const Json& json, const std::string& origin, ManifestKind kind) {
    Manifest manifest;
    manifest.kind = kind;
    Record record(json, origin);
    describe(record, manifest);
    check_whole(manifest, origin);
    return manifest;
}

}  // namespace lockstep
