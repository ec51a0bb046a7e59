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
std::string_view element_name(ElementType type);  ///< "u8", "f32", ... as manifests spell it
std::size_t element_bytes(ElementType type);      ///< of one element

/// How blocks are stored. The numbers are HDF5's registered filter identifiers; `filters` is for
/// chunks of foreign files that went through several, or through one that shards never have.
enum class Codec : std::uint16_t {
    none = 0,
    deflate = 1,
    lz4 = 32004,
    zstd = 32015,
    filters = 65535,
};
std::string_view codec_name(Codec codec);  ///< as `data pack --codec` spells it

/// The codec of packed shards called `name`. Errors: E103 listing the names.
Codec parse_codec(std::string_view name);

/// How many classes a field may have.
inline constexpr std::int64_t max_classes = 1'000'000;

/// How long the names of a field's columns may be together.
inline constexpr std::size_t most_column_bytes = std::size_t{1} << 20;

/// One column of a data set: /data/NAME in every shard, one row per sample.
struct Field {
    std::string name;
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;          ///< of one sample, e.g. {1, 28, 28}; {} for a scalar
    std::string layout;                       ///< "CHW" for images, "" if there is nothing to say
    std::vector<double> mean, std;            ///< per channel, of value / 255; empty for labels
    std::vector<std::string> class_names;     ///< of fields of classes; may be empty
    std::vector<std::uint64_t> class_counts;  ///< of fields of classes: elements of each
    std::vector<std::string> columns;  ///< names of a table's, by element of {D}; may be empty
    std::string source;                ///< path in foreign files; "" means /data/NAME

    std::size_t bytes_per_sample() const;  ///< decoded; the product of `shape` and the type's size
    /// Number of classes: of samples (labels), of pixels (masks [H, W]), or the vocabulary (tokens
    /// [T]); 0 for a field of anything else, and for masks and tokens of unknown classes.
    std::int64_t classes() const { return static_cast<std::int64_t>(class_counts.size()); }
    bool operator==(const Field&) const = default;
};

/// The place of a field's block index in a shard, and its hash.
struct IndexPlace {
    std::uint64_t offset = 0;  ///< of /index/FIELD in the file
    std::uint64_t blocks = 0;  ///< rows of 32 bytes
    std::uint64_t hash = 0;    ///< XXH3-64 of these rows
    bool operator==(const IndexPlace&) const = default;
};

/// One file of a data set.
struct Shard {
    std::string name;  ///< in the manifest's folder; of foreign files, a path below it
    std::uint64_t bytes = 0;
    std::uint64_t samples = 0;  ///< 0: linked, it holds values of the next shard that has some
    std::uint64_t first_sample = 0;
    std::string xxh3_128;  ///< of the whole file; of foreign ones, of size, time and layout
    std::vector<IndexPlace> index;  ///< by field; foreign files have none
    bool operator==(const Shard&) const = default;
};

/// Packed shards, or HDF5 files that others wrote, which have neither hashes nor an index.
enum class ManifestKind { packed, foreign };

/// The content of manifest.json. A value; parse_manifest() gives only ones that make sense:
/// shards cover [0, samples) in order and, if packed, begin at multiples of block_rows.
struct Manifest {
    ManifestKind kind = ManifestKind::packed;
    std::string name, split, uuid, writer, row_order;
    Codec codec = Codec::none;
    std::uint64_t samples = 0;
    std::uint32_t block_rows = 0;  ///< rows of a block; only the data set's last may have fewer
    std::vector<Field> fields;
    std::vector<Shard> shards;
    std::string digest;  ///< XXH3-128 of the text before it; identifies the content

    std::uint64_t bytes_per_sample() const;  ///< over all fields
    bool operator==(const Manifest&) const = default;
};

/// The manifest's file in a data set's folder.
inline constexpr std::string_view manifest_name = "manifest.json";

/// What this version writes and reads.
inline constexpr int manifest_format_version = 1;

/// No data set has more.
inline constexpr std::uint64_t most_samples = std::uint64_t{1} << 48;

/// The sealed text of `manifest` (its digest is computed, not taken).
std::string manifest_text(const Manifest& manifest);

/// `text` followed by its seal: `text` is a JSON object without its closing brace.
std::string sealed(std::string text);

/// Errors: E222 (makes no sense, or is not of this kind), E223 (the digest does not match), E305.
Manifest parse_manifest(std::string_view text,
                        const std::string& origin,
                        ManifestKind kind = ManifestKind::packed);

/// Errors: E201 (no such folder), E216 (no manifest in it), and those of parse_manifest.
std::string read_manifest_text(const std::filesystem::path& folder);

}  // namespace lockstep
