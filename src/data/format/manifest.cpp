// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/manifest.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "codec.hpp"
#include "manifest_fields.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

bool is_field_name(std::string_view name) {
    return !name.empty() && std::ranges::all_of(name, [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-';
    });
}

std::string uuid_from(std::string digest) {
    digest[12] = '8';
    digest[16] = '8';
    for (const std::size_t dash : {8, 13, 18, 23}) digest.insert(dash, 1, '-');
    return digest;
}

namespace {

std::string_view format_name(ManifestKind kind) {
    constexpr std::array<std::string_view, 3> names{
        "lockstep-dataset", "lockstep-foreign", "lockstep-kept-data"};
    return names.at(static_cast<std::size_t>(kind));
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

bool is_hex(std::string_view text, std::size_t digits) {
    return text.size() == digits &&
           std::ranges::all_of(text, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

std::optional<std::uint64_t> parse_hex64(std::string_view text) {
    if (!is_hex(text, 16)) return {};
    return std::stoull(std::string(text), nullptr, 16);
}

void check_names(const Shard& shard, const std::vector<Field>& fields, const std::string& origin) {
    for (std::size_t f = 0; f < shard.index.size(); ++f)
        if (f >= fields.size() || shard.index[f].field != fields[f].name)
            throw nonsense(origin, fmt::format("the index of '{}' names other fields", shard.name));
}

constexpr std::array<std::string_view, 3> missing_names{"error", "drop", "mean"};
constexpr std::array<std::string_view, 2> decimal_names{"point", "comma"};

std::size_t letters_of(const std::vector<std::string>& names) {
    std::size_t letters = 0;
    for (const std::string& name : names) letters += name.size();
    return letters;
}

bool fits_shape(const TableForm& form, std::uint64_t elements) {
    std::uint64_t numbers = form.categories.empty() ? form.columns.size() : 0;
    std::size_t letters = form.encoding.size() + letters_of(form.columns);
    for (const auto& texts : form.categories) {
        numbers += std::max<std::size_t>(texts.size(), 1);
        letters += letters_of(texts);
        if (std::ranges::adjacent_find(texts, std::ranges::greater_equal()) != texts.end())
            return false;
    }
    const bool has_each = form.categories.empty() || form.categories.size() == form.columns.size();
    const auto is_finite = [](double fill) { return std::isfinite(fill); };
    return numbers == elements && has_each && form.width >= form.columns.size() &&
           letters <= 2 * most_column_bytes && std::ranges::all_of(form.fills, is_finite) &&
           form.fills.size() == (form.missing == Missing::mean ? numbers : 0);
}

// Whether a field has a name, and a column or a category of one, for each of its numbers, as far as
// it has any.
bool has_table_of_its_shape(const Field& field) {
    if (field.columns.empty() && field.table.width == 0) return true;
    if (field.shape.size() > 1) return false;
    const auto elements = static_cast<std::uint64_t>(field.shape.empty() ? 1 : field.shape[0]);
    const bool are_named =
        field.columns.empty() ||
        (field.columns.size() == elements && letters_of(field.columns) <= most_column_bytes);
    return are_named && (field.table.width == 0 || fits_shape(field.table, elements));
}

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
    if (!has_table_of_its_shape(field))
        throw nonsense(origin, fmt::format("field '{}' has other names than columns", field.name));
}

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
    if (manifest.kind != ManifestKind::kept)
        check_shards(manifest, origin);
    else if (!manifest.shards.empty())
        throw nonsense(origin, "it has shards");
}

struct CodecName {
    Codec codec;
    std::string_view name;
};
constexpr std::array<CodecName, 5> codecs{{{Codec::none, "none"},
                                           {Codec::deflate, "deflate"},
                                           {Codec::lz4, "lz4"},
                                           {Codec::zstd, "zstd"},
                                           {Codec::filters, "filters"}}};

std::optional<Codec> parse_stored_codec(std::string_view name, ManifestKind kind) {
    const auto found = std::ranges::find(codecs, name, &CodecName::name);
    if (found == codecs.end()) return {};
    if (found->codec == Codec::filters && kind == ManifestKind::packed) return {};
    return found->codec;
}

constexpr std::string_view seal_start = ",\n  \"digest\": \"";
constexpr std::string_view seal_end = "\"\n}\n";

void check_seal(std::string_view text, const std::string& digest, const std::string& origin) {
    const auto cut = text.rfind(seal_start);
    const bool is_sealed =
        cut != std::string_view::npos && sealed(std::string(text.substr(0, cut))) == text;
    check(is_sealed,
          "E223",
          fmt::format("'{}' was changed after it was written", origin),
          // It comes from a file that may say anything.
          is_hex(digest, 32)
              ? "its digest says " + digest
              : fmt::format("its digest says {} characters that are no digest", digest.size()),
          "restore it from its source; do not edit it");
}

}  // namespace

void describe(Record& record, TableForm& form) {
    record.count("width", form.width);
    record.field("columns", form.columns);
    record.sparse("categories", form.categories);
    record.field("missing", form.missing, missing_names);
    record.sparse("fills", form.fills);
    record.field("decimal", form.decimal, decimal_names);
    record.sparse("encoding", form.encoding);
}

void describe(Record& record, Field& field) {
    record.field("name", field.name);
    record.text("type", field.type, element_name, parse_element, "an element type");
    record.field("shape", field.shape);
    LOCKSTEP_EACH(record.sparse, field.layout, field.mean, field.std, field.class_counts);
    LOCKSTEP_EACH(record.sparse, field.class_names, field.columns);
    if (record.wants("table", field.table.width > 0)) record.field("table", field.table);
    record.sparse("source", field.source);
}

void describe(Record& record, IndexPlace& place) {
    record.field("field", place.field);
    LOCKSTEP_EACH(record.count, place.offset, place.blocks);
    record.text("xxh3_64", place.hash, hex64, parse_hex64, "16 hexadecimal digits");
}

void describe(Record& record, Shard& shard) {
    record.field("path", shard.name);
    LOCKSTEP_EACH(record.count, shard.bytes, shard.samples, shard.first_sample);
    LOCKSTEP_EACH(record.field, shard.xxh3_128, shard.index);
}

Shard shard_from_json(const Json& json,
                      const std::vector<Field>& fields,
                      const std::string& origin) {
    Shard shard = record_from_json<Shard>(json, origin);
    check_names(shard, fields, origin);
    return shard;
}

// What the file has; `kind` is known before.
void describe(Record& record, Manifest& manifest) {
    const ManifestKind kind = manifest.kind;
    std::string format(format_name(kind));
    record.field("format", format);
    if (format != format_name(kind))
        throw nonsense(record.origin(), fmt::format("its format is '{}'", printable(format)));
    record.version("format_version", manifest_format_version);
    LOCKSTEP_EACH(record.field, manifest.name, manifest.split, manifest.uuid, manifest.writer);
    record.field("row_order", manifest.row_order);
    const auto parse_codec = [=](std::string_view name) { return parse_stored_codec(name, kind); };
    record.text("codec", manifest.codec, codec_name, parse_codec, "a codec");
    record.count("samples", manifest.samples);
    std::uint64_t block_rows = manifest.block_rows;
    record.field("block_rows", block_rows);
    if (record.is_reading()) {
        if (block_rows < 1 || block_rows > 0x7fffffff)
            throw nonsense(record.origin(), fmt::format("blocks of {} rows", block_rows));
        manifest.block_rows = static_cast<std::uint32_t>(block_rows);
    }
    LOCKSTEP_EACH(record.field, manifest.fields, manifest.shards);
    if (!record.is_reading()) return;
    for (const Shard& shard : manifest.shards) check_names(shard, manifest.fields, record.origin());
}

std::string_view element_name(ElementType type) {
    constexpr std::array<std::string_view, 5> names{"u8", "i32", "i64", "f32", "f64"};
    return names.at(static_cast<std::size_t>(type));
}

std::size_t element_bytes(ElementType type) {
    constexpr std::array<std::size_t, 5> sizes{1, 4, 8, 4, 8};
    return sizes.at(static_cast<std::size_t>(type));
}

std::string_view codec_name(Codec codec) {
    return std::ranges::find(codecs, codec, &CodecName::codec)->name;
}

Codec parse_codec(std::string_view name) {
    const auto codec = parse_stored_codec(name, ManifestKind::packed);
    check(codec.has_value(),
          "E103",
          fmt::format("'{}' is no codec", name),
          "the codecs are none, deflate, lz4 and zstd");
    return *codec;
}

std::size_t Field::bytes_per_sample() const {
    return std::accumulate(
        shape.begin(), shape.end(), element_bytes(type), [](std::size_t bytes, std::int64_t size) {
            return bytes * static_cast<std::size_t>(size);
        });
}

std::uint64_t Manifest::bytes_per_sample() const {
    std::uint64_t bytes = 0;
    for (const Field& field : fields) bytes += field.bytes_per_sample();
    return bytes;
}

std::string sealed(std::string text) {
    const std::string digest = hash128(std::string_view(text)).hex();
    return text.append(seal_start).append(digest).append(seal_end);
}

std::string manifest_text(const Manifest& manifest) {
    std::string text = json_of_record(manifest).dump(2);
    text.resize(text.rfind("\n}"));
    return sealed(std::move(text));
}

Manifest parse_manifest(std::string_view text, const std::string& origin, ManifestKind kind) {
    const Json json = parse_json(text, origin);
    const auto digest = json_field<std::string>(json, "digest", origin);
    check_seal(text, digest, origin);
    Manifest manifest;
    manifest.kind = kind;
    Record record(json, origin);
    describe(record, manifest);
    check_whole(manifest, origin);
    manifest.digest = digest;
    return manifest;
}

std::string read_manifest_text(const fs::path& folder) {
    const fs::path path = folder / manifest_name;
    std::error_code failed;
    const fs::file_status status = fs::status(folder, failed);
    if (status.type() == fs::file_type::not_found) throw system_error("open", folder, ENOENT);
    if (failed) throw system_error("open", folder, failed.value());
    const bool is_missing =
        !fs::is_directory(status) || fs::status(path, failed).type() == fs::file_type::not_found;
    check(!is_missing, [&] {
        const fs::path below = folder / "train";
        const bool has_one = fs::exists(fs::status(below / manifest_name, failed));
        return Error("E216",
                     fmt::format("'{}' is no data set", folder.string()),
                     fs::is_directory(status) ? fmt::format("it has no {}", manifest_name)
                                              : "it is a file, not a folder",
                     has_one ? fmt::format("give one that is in it, such as '{}'", below.string())
                             : "make one with 'lockstep data pack', or check the path");
    });
    return read_file(path);
}

}  // namespace lockstep
