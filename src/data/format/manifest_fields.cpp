// SPDX-License-Identifier: Apache-2.0
#include "manifest_fields.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "expansion.hpp"
#include "naming.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string_view format_name(ManifestKind kind) {
    return kind == ManifestKind::packed ? "lockstep-dataset" : "lockstep-foreign";
}

constexpr std::uint64_t max_sample_bytes = std::uint64_t{1} << 40;

Error nonsense(const std::string& origin, const std::string& why) {
    return Error("E222",
                 fmt::format("'{}' makes no sense as a data set's manifest", origin),
                 why,
                 "restore it from its source; do not edit it");
}

ElementType parse_element(const std::string& name, const std::string& origin) {
    using enum ElementType;
    for (const ElementType type : {u8, i32, i64, f32, f64})
        if (element_name(type) == name) return type;
    throw nonsense(origin, fmt::format("'{}' is no element type", name));
}

std::uint64_t parse_hex64(const std::string& text, const std::string& origin) {
    const bool is_hex = text.size() == 16 && std::ranges::all_of(text, [](unsigned char c) {
                            return std::isxdigit(c) != 0;
                        });
    if (!is_hex) throw nonsense(origin, "a hash does not have 16 hexadecimal digits");
    return std::stoull(text, nullptr, 16);
}

const Json& array_of(const Json& object, const std::string& key, const std::string& origin) {
    if (!object.is_object() || !object.contains(key) || !object.at(key).is_array())
        throw nonsense(origin, fmt::format("'{}' is not a list", key));
    return object.at(key);
}

std::vector<std::uint64_t> counts_of(const Json& list, const std::string& origin) {
    std::vector<std::uint64_t> counts;
    for (const Json& item : list) {
        if (!item.is_number_unsigned()) throw nonsense(origin, "a class count is no number");
        counts.push_back(item.get<std::uint64_t>());
    }
    return counts;
}

}  // namespace

Json field_json(const Field& field) {
    Json json{{"name", field.name}, {"type", element_name(field.type)}, {"shape", field.shape}};
    if (!field.layout.empty()) json["layout"] = field.layout;
    if (!field.mean.empty()) json["mean"] = field.mean;
    if (!field.std.empty()) json["std"] = field.std;
    if (!field.class_counts.empty()) json["class_counts"] = field.class_counts;
    if (!field.class_names.empty()) json["class_names"] = field.class_names;
    if (!field.source.empty()) json["source"] = field.source;
    return json;
}

Field field_from_json(const Json& json, const std::string& origin) {
    Field field;
    field.name = json_field<std::string>(json, "name", origin);
    field.type = parse_element(json_field<std::string>(json, "type", origin), origin);
    field.shape = json_field<std::vector<std::int64_t>>(json, "shape", origin);
    if (json.contains("layout")) field.layout = json_field<std::string>(json, "layout", origin);
    if (json.contains("mean")) field.mean = json_field<std::vector<double>>(json, "mean", origin);
    if (json.contains("std")) field.std = json_field<std::vector<double>>(json, "std", origin);
    if (json.contains("class_counts"))
        field.class_counts = counts_of(array_of(json, "class_counts", origin), origin);
    if (json.contains("class_names"))
        field.class_names = json_field<std::vector<std::string>>(json, "class_names", origin);
    if (json.contains("source")) field.source = json_field<std::string>(json, "source", origin);
    return field;
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
}

}  // namespace

Json shard_json(const Shard& shard, const std::vector<Field>& fields) {
    Json index = Json::array();
    for (std::size_t f = 0; f < shard.index.size(); ++f)
        index.push_back({{"field", fields[f].name},
                         {"offset", shard.index[f].offset},
                         {"blocks", shard.index[f].blocks},
                         {"xxh3_64", hex64(shard.index[f].hash)}});
    return {{"path", shard.name},
            {"bytes", shard.bytes},
            {"samples", shard.samples},
            {"first_sample", shard.first_sample},
            {"xxh3_128", shard.xxh3_128},
            {"index", std::move(index)}};
}

Shard shard_from_json(const Json& json,
                      const std::vector<Field>& fields,
                      const std::string& origin) {
    Shard shard;
    shard.name = json_field<std::string>(json, "path", origin);
    shard.bytes = json_field<std::uint64_t>(json, "bytes", origin);
    shard.samples = json_field<std::uint64_t>(json, "samples", origin);
    shard.first_sample = json_field<std::uint64_t>(json, "first_sample", origin);
    shard.xxh3_128 = json_field<std::string>(json, "xxh3_128", origin);
    for (const Json& place : array_of(json, "index", origin)) {
        const std::size_t f = shard.index.size();
        if (f >= fields.size() || json_field<std::string>(place, "field", origin) != fields[f].name)
            throw nonsense(origin, fmt::format("the index of '{}' names other fields", shard.name));
        shard.index.push_back(
            {json_field<std::uint64_t>(place, "offset", origin),
             json_field<std::uint64_t>(place, "blocks", origin),
             parse_hex64(json_field<std::string>(place, "xxh3_64", origin), origin)});
    }
    return shard;
}

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

// What is not compressed needs its size in the file; what is, is a chunk of HDF5.
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
        const bool fits = shard.samples >= 1 && shard.samples <= manifest.samples - next &&
                          shard.first_sample == next &&
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

void check_format(const Json& json, const std::string& origin, ManifestKind kind) {
    const auto format = json_field<std::string>(json, "format", origin);
    if (format != format_name(kind))
        throw nonsense(origin, fmt::format("its format is '{}'", format));
    const auto version = json_field<std::uint64_t>(json, "format_version", origin);
    if (version != manifest_format_version)
        throw nonsense(origin,
                       fmt::format("it has format version {}; this program reads version {}",
                                   version,
                                   manifest_format_version));
}

std::uint32_t block_rows_of(const Json& json, const std::string& origin) {
    const auto rows = json_field<std::uint64_t>(json, "block_rows", origin);
    if (rows < 1 || rows > 0x7fffffff)
        throw nonsense(origin, fmt::format("blocks of {} rows", rows));
    return static_cast<std::uint32_t>(rows);
}

Codec codec_of(const Json& json, const std::string& origin, ManifestKind kind) {
    const auto name = json_field<std::string>(json, "codec", origin);
    if (kind == ManifestKind::foreign && name == codec_name(Codec::filters)) return Codec::filters;
    try {
        return parse_codec(name);
    } catch (const Error& error) {
        throw nonsense(origin, error.why());
    }
}

}  // namespace

std::string printable_digest(const std::string& digest) {
    const bool is_digest = digest.size() == 32 && std::ranges::all_of(digest, [](unsigned char c) {
                               return std::isxdigit(c) != 0;
                           });
    return is_digest ? digest : fmt::format("{} characters that are no digest", digest.size());
}

Json manifest_json(const Manifest& manifest) {
    Json json{{"format", format_name(manifest.kind)},
              {"format_version", manifest_format_version},
              {"name", manifest.name},
              {"split", manifest.split},
              {"uuid", manifest.uuid},
              {"writer", manifest.writer},
              {"row_order", manifest.row_order},
              {"codec", codec_name(manifest.codec)},
              {"samples", manifest.samples},
              {"block_rows", manifest.block_rows},
              {"fields", Json::array()},
              {"shards", Json::array()}};
    for (const Field& field : manifest.fields) json["fields"].push_back(field_json(field));
    for (const Shard& shard : manifest.shards)
        json["shards"].push_back(shard_json(shard, manifest.fields));
    return json;
}

Manifest manifest_from_json(const Json& json, const std::string& origin, ManifestKind kind) {
    check_format(json, origin, kind);
    Manifest manifest;
    manifest.kind = kind;
    manifest.name = json_field<std::string>(json, "name", origin);
    manifest.split = json_field<std::string>(json, "split", origin);
    manifest.uuid = json_field<std::string>(json, "uuid", origin);
    manifest.writer = json_field<std::string>(json, "writer", origin);
    manifest.row_order = json_field<std::string>(json, "row_order", origin);
    manifest.codec = codec_of(json, origin, kind);
    manifest.samples = json_field<std::uint64_t>(json, "samples", origin);
    manifest.block_rows = block_rows_of(json, origin);
    for (const Json& field : array_of(json, "fields", origin))
        manifest.fields.push_back(field_from_json(field, origin));
    for (const Json& shard : array_of(json, "shards", origin))
        manifest.shards.push_back(shard_from_json(shard, manifest.fields, origin));
    check_whole(manifest, origin);
    return manifest;
}

}  // namespace lockstep
