// SPDX-License-Identifier: Apache-2.0
/// @file
/// The description of a data set: manifest.json, protected by its own digest.
#pragma once

#include "lockstep/core/hash.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Type of a field's elements, little-endian on disk.
enum class ElementType { u8, i32, i64, f32, f64 };
std::string_view element_name(ElementType type);  ///< name in manifests: "u8", "f32", ...
std::size_t element_bytes(ElementType type);      ///< size of one element

/// The form of stored blocks. The numbers are HDF5's registered filter identifiers. `filters` is
/// for chunks of foreign files with several filters, or with one that shards never have.
enum class Codec : std::uint16_t {
    none = 0,
    deflate = 1,
    lz4 = 32004,
    zstd = 32015,
    filters = 65535,
};
std::string_view codec_name(Codec codec);  ///< name for `data pack --codec`

/// Returns the codec of packed shards called `name`. Errors: E103 listing the names.
Codec parse_codec(std::string_view name);

/// Largest number of classes of a field.
inline constexpr std::int64_t max_classes = 1'000'000;

/// Largest total length of the names of a field's columns.
inline constexpr std::size_t most_column_bytes = std::size_t{1} << 20;

/// One column of a data set: /data/NAME in every shard, one row per sample.
struct Field {
    std::string name;
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;  ///< shape of one sample, e.g. {1, 28, 28}; {} for a scalar
    std::string layout;               ///< "CHW" for images, else ""
    std::vector<double> mean, std;    ///< per channel, of value / 255; empty for labels
    std::vector<std::string> class_names;     ///< for fields of classes; may be empty
    std::vector<std::uint64_t> class_counts;  ///< for fields of classes: elements of each
    std::vector<std::string> columns;  ///< column names of a table, by element of {D}; may be empty
    std::string source;                ///< path in foreign files; "" means /data/NAME

    std::size_t bytes_per_sample() const;  ///< decoded; the product of `shape` and the type's size
    /// Returns the number of classes: of samples (labels), of pixels (masks [H, W]), or the
    /// vocabulary (tokens [T]). Returns 0 for other fields, and for masks and tokens of unknown
    /// classes.
    std::int64_t classes() const { return static_cast<std::int64_t>(class_counts.size()); }
    bool operator==(const Field&) const = default;
};

/// The place of a field's block index in a shard, and its hash.
struct IndexPlace {
    std::uint64_t offset = 0;  ///< offset of /index/FIELD in the file
    std::uint64_t blocks = 0;  ///< number of rows of 32 bytes
    std::uint64_t hash = 0;    ///< XXH3-64 of these rows
    bool operator==(const IndexPlace&) const = default;
};

/// One file of a data set.
struct Shard {
    std::string name;  ///< file in the manifest's folder; for foreign files, a path below it
    std::uint64_t bytes = 0;
    std::uint64_t samples = 0;  ///< 0: a linked file with values of the next shard that has samples
    std::uint64_t first_sample = 0;
    std::string xxh3_128;  ///< hash of the whole file; for foreign ones, of size, time and layout
    std::vector<IndexPlace> index;  ///< by field; empty for foreign files
    bool operator==(const Shard&) const = default;
};

/// Packed shards, or foreign HDF5 files, which have neither hashes nor an index.
enum class ManifestKind { packed, foreign };

/// The content of manifest.json. A value. parse_manifest() returns only consistent ones: shards
/// cover [0, samples) in order and, if packed, begin at multiples of block_rows.
struct Manifest {
    ManifestKind kind = ManifestKind::packed;
    std::string name, split, uuid, writer, row_order;
    Codec codec = Codec::none;
    std::uint64_t samples = 0;
    std::uint32_t block_rows = 0;  ///< rows of a block; only the data set's last may have fewer
    std::vector<Field> fields;
    std::vector<Shard> shards;
    std::string digest;  ///< XXH3-128 of the text before it; identifies the content

    std::uint64_t bytes_per_sample() const;  ///< sum over all fields
    bool operator==(const Manifest&) const = default;
};

/// The manifest's file in a data set's folder.
inline constexpr std::string_view manifest_name = "manifest.json";

/// The version that this program writes and reads.
inline constexpr int manifest_format_version = 1;

/// Upper limit for data sets.
inline constexpr std::uint64_t most_samples = std::uint64_t{1} << 48;

/// Returns the sealed text of `manifest`; its digest is computed.
std::string manifest_text(const Manifest& manifest);

/// Returns `text` followed by its seal; `text` is a JSON object without its closing brace.
std::string sealed(std::string text);

/// Parses a manifest. Errors: E222 (inconsistent, or not of this kind), E223 (the digest does not
/// match), E305.
Manifest parse_manifest(std::string_view text,
                        const std::string& origin,
                        ManifestKind kind = ManifestKind::packed);

/// Reads the text of a manifest. Errors: E201 (no such folder), E216 (no manifest in it), and those
/// of parse_manifest.
std::string read_manifest_text(const std::filesystem::path& folder);

}  // namespace lockstep
