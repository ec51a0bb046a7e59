// SPDX-License-Identifier: Apache-2.0
/// @file
/// The description of a data set: manifest.json, protected by its own digest.
#pragma once

#include "lockstep/core/hash.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
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

/// What is done with a table's cells without a value. mean: a cell gets the mean of its column's
/// others.
enum class Missing { error, drop, mean };

/// The sign before the decimals of a table's numbers.
enum class DecimalSign { point, comma };

/// How a table's cells became the numbers of a field, which tables of new data follow.
struct TableForm {
    std::uint64_t width = 0;             ///< columns of the table; 0: there is no form
    std::vector<std::string> columns{};  ///< those of the field: names, or numbers from 1
    /// By column: its texts, sorted, each a number of the field that is 1 or 0; empty: the column
    /// holds numbers. No list at all: each column does.
    std::vector<std::vector<std::string>> categories{};
    Missing missing = Missing::error;
    std::vector<double> fills{};  ///< with Missing::mean: by number of the field
    DecimalSign decimal = DecimalSign::point;
    std::string encoding;  ///< as `data pack --encoding`

    bool operator==(const TableForm&) const = default;
};

/// One column of a data set: /data/NAME in every shard, one row per sample.
struct Field {
    std::string name;
    ElementType type = ElementType::u8;
    std::vector<std::int64_t> shape;  ///< shape of one sample, e.g. {1, 28, 28}; {} for a scalar
    std::string layout;               ///< "CHW" for images, else ""
    std::vector<double> mean, std;    ///< per channel, of value / 255; empty for labels
    std::vector<std::string> class_names;     ///< for fields of classes; may be empty
    std::vector<std::uint64_t> class_counts;  ///< for fields of classes: elements of each
    /// Column names of a table, by element of {D}, or one of a scalar; may be empty.
    std::vector<std::string> columns;
    TableForm table;     ///< for tables that need more than names
    std::string source;  ///< path in foreign files; "" means /data/NAME

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
    std::string field{};       ///< name of the field
    bool operator==(const IndexPlace&) const = default;
};

/// One file of a data set.
struct Shard {
    std::string name;  ///< file in the manifest's folder; for foreign files, a path below it
    std::uint64_t bytes = 0;
    std::uint64_t samples = 0;  ///< 0: a linked file with values of the next shard that has samples
    std::uint64_t first_sample = 0;
    std::string xxh3_128{};  ///< hash of the whole file; for foreign ones, of size, time and layout
    std::vector<IndexPlace> index{};  ///< by field; empty for foreign files
    bool operator==(const Shard&) const = default;
};

/// Packed shards, or foreign HDF5 files, which have neither hashes nor an index. `kept`: the fields
/// of a run's training data, without samples.
enum class ManifestKind { packed, foreign, kept };

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

/// Whether samples are stored as [H, W, C].
bool has_channels_last(const Field& field);

/// Returns the dimension of a stored sample of which each place has its own mean and deviation:
/// channels of images and of volumes [C, D, H, W], columns [D], features of sequences [T, F].
/// Nothing: they are of all values, as those of an image [H, W], and of u8 of two dimensions.
std::optional<std::size_t> statistics_axis(const Field& field);

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
