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

/// Whether samples are stored as [H, W, C].
bool has_channels_last(const Field& field);

/// As training takes it: "C 3, H 32, W 32", of masks and images of two dimensions "H 28, W 28"; ""
/// of a field without such axes.
std::string axes_text(const Field& field);

/// Whether `shape`, of three dimensions, may be [H, W, C] as well as [C, H, W]: never guess
/// then. Its last number is at most 4, or at most half of the others, or they alone are equal.
bool may_have_channels_last(const std::vector<std::int64_t>& shape);

/// One line about the classes of `field` that do not occur, and how numpy numbers the others;
/// "" if all occur, and for tokens, whose vocabulary is not of one data set.
std::string unused_classes_text(const Field& field);

/// Errors: E210 if so many classes do not occur that their weights would be most of a model.
void check_class_numbers(const Field& field);

/// Rows that are stored side by side; `first` is a global sample number.
struct RowBlock {
    std::uint64_t first = 0;                                ///< global sample number
    std::uint32_t rows = 0;                                 ///< from there on
    std::uint32_t left_out = 0;                             ///< of these, what an order has not
    std::uint32_t used() const { return rows - left_out; }  ///< what it has
    bool operator==(const RowBlock&) const = default;
};

/// Which samples an order has: all, or those on one side of a split by XXH3-64 of a sample's number
/// (8 bytes, little-endian). So a sample's part depends only on its number and the share.
struct SamplePart {
    /// Below the bound, or not.
    enum class Side { all, first, second };
    Side side = Side::all;    ///< that the order has
    std::uint64_t bound = 0;  ///< of hashes on the first side

    static SamplePart first(double share);   ///< about `share`, above 0 and below 1, of all
    static SamplePart second(double share);  ///< the others
    bool holds(std::uint64_t sample) const;  ///< whether the order has it
    bool operator==(const SamplePart&) const = default;
};

/// `blocks` with what `part` leaves out counted, without those that it leaves out whole.
std::vector<RowBlock> blocks_in(std::vector<RowBlock> blocks, const SamplePart& part);

/// How many samples of `blocks` are in `part`.
std::uint64_t samples_in(const std::vector<RowBlock>& blocks, const SamplePart& part);

/// [0, samples) in blocks of `block_rows`; the last may have fewer.
std::vector<RowBlock> row_blocks(std::uint64_t samples, std::uint32_t block_rows);

}  // namespace lockstep
