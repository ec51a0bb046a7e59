// SPDX-License-Identifier: Apache-2.0
/// @file
/// The place and form of every block of a data set: opened once per job and sent to all ranks.
#pragma once

#include "lockstep/core/files.hpp"
#include "lockstep/data/manifest.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What a field's rows are. `label`: class numbers or names, which are counted when the files are
/// opened; `one_hot`: K numbers, 1 in the place of the class and else 0; `value`: no class numbers
/// and no axes, whatever the field is called.
enum class RowLayout { unstated, chw, hwc, hw, label, one_hot, value };

/// How images of three dimensions lie in the input; data sets have CHW. `unstated` is CHW, unless
/// the sizes look like HWC: then it is an error.
enum class ImageLayout { unstated, chw, hwc };

/// What is done about data sets whose values lie in other files than the one that is named:
/// links, virtual data sets, external storage. A file may name any other that this user can read.
enum class Links { refused, followed };

/// That numbers are taken for what the attributes of the CF conventions say they stand for.
struct CfValues {
    /// In the place of missing ones, also NaN; nothing: one is an error.
    std::optional<double> instead;
    bool operator==(const CfValues&) const = default;
};

/// A field and where it lies: in each file of the data, or in files of its own.
struct FieldMapping {
    std::string name;       ///< what training calls it: "images", "labels"
    std::string hdf5_path;  ///< of the data set, e.g. "/x/data"
    /// A scalar field named "labels" is a label unless it says else.
    RowLayout layout = RowLayout::unstated;
    std::optional<CfValues> cf = {};  ///< nothing: numbers are taken as they are stored
    Links links = Links::refused;     ///< not of its text: one word is for all fields
    /// File or pattern of the field alone, whose rows are those of the data in their order; "": it
    /// lies in each file of the data.
    fs::path file = {};
    bool operator==(const FieldMapping&) const = default;
};

/// How chunks cut a field's samples: like tiles, those at the end beyond it.
///
///     sample [5, 6], chunk [3, 4]      0 0 0 0 1 1 . .      rows of chunk[0] samples are a band;
///                                      0 0 0 0 1 1 . .      its tiles are numbered as their
///                                      0 0 0 0 1 1 . .      beginnings are in memory, and each
///                                      2 2 2 2 3 3 . .      is one chunk
///                                      2 2 2 2 3 3 . .
///                                      . . . . . . . .      . padding
struct Cut {
    std::vector<std::uint64_t> sample, chunk;  ///< elements by dimension, without that of rows
    bool operator==(const Cut&) const = default;

    std::uint64_t tiles() const;           ///< number of tiles in a band
    std::uint64_t chunk_elements() const;  ///< elements of one row of a chunk, with padding

    /// Returns the number of elements of one row of a tile that belong to the sample.
    std::uint64_t elements_of(std::uint64_t tile) const;

    /// Returns true if all sizes of samples and chunks are at least 1, and nothing overflows.
    bool is_sound() const;
};

/// Removes padding: moves the elements that belong to samples to the front of `chunk`, which has
/// `rows` rows of tile number `tile`. Returns them: [rows, elements_of(tile)].
std::span<std::byte> without_padding(const Cut& cut,
                                     std::uint64_t tile,
                                     std::size_t element_bytes,
                                     std::uint64_t rows,
                                     std::span<std::byte> chunk);

/// Copies rows of a tile without padding to their places in `samples`, which has the same number of
/// whole rows.
void put_tile(const Cut& cut,
              std::uint64_t tile,
              std::size_t element_bytes,
              std::span<const std::byte> values,
              std::span<std::byte> samples);

/// The filters that can be read. The numbers are HDF5's registered identifiers.
enum class FilterKind : std::uint16_t {
    deflate = 1,
    shuffle = 2,
    fletcher32 = 3,
    lzf = 32000,  ///< filter of h5py
    blosc = 32001,
    lz4 = 32004,
    zstd = 32015,
    /// No filter of HDF5: converts numbers to the field's wider type, or changes their byte order.
    /// Only the first of a chain.
    widening = 65535,
    /// None either: numbers that stand for others, and become f32 (format/widening.hpp). Only the
    /// first of a chain, without a widening.
    unpacking = 65534,
};

/// One filter and the data for reversing it.
struct Filter {
    FilterKind kind = FilterKind::deflate;
    std::uint32_t element = 0;  ///< shuffle: bytes of an element; the last two: their code; else 0
    std::vector<std::uint64_t> values = {};  ///< unpacking: its parameters; else none
    bool operator==(const Filter&) const = default;
};

/// Filters in the order of writing; reading reverses the last one first. Empty: no filters.
using FilterChain = std::vector<Filter>;

/// Returns true if `kind` is the number of one of HDF5's filters that this build reads.
bool is_known_filter(std::uint64_t kind);

/// Returns true if `kind` is not a filter of HDF5, but converts elements on reading.
bool is_own_filter(std::uint64_t kind);

/// Returns "shuffle+deflate"; "none" for an empty chain.
std::string filter_text(const FilterChain& chain);

/// Returns the reason why a chain cannot be reversed: several filters that compress, too many
/// filters, a shuffle of elements without size. Returns "" if it can.
std::string filter_fault(const FilterChain& chain);

/// Replaces the number of a file if the block's bytes are kept in the index.
inline constexpr std::uint32_t kept_in_index = 0xffffffff;

/// A field's rows in a file; if chunks cut samples, one tile of them.
struct StoredBlock {
    std::uint64_t first_row = 0;      ///< global sample number
    std::uint64_t offset = 0;         ///< offset in the file
    std::uint64_t stored_bytes = 0;   ///< size in the file
    std::uint64_t decoded_bytes = 0;  ///< size of the rows, with a chunk's padding
    std::uint64_t hash = 0;           ///< XXH3-64 of the stored bytes, if `is_hashed`
    std::uint32_t rows = 0;           ///< number of samples
    std::uint32_t shard = 0;          ///< number of its file, or kept_in_index
    Codec codec = Codec::none;        ///< form in which it is stored
    bool is_hashed = false;           ///< false: the file has no hash of it
    std::uint16_t chain = 0;          ///< if `codec` is `filters`: index into BlockForms::chains
    std::uint16_t cut = 0;            ///< for tiles: index into BlockForms::cuts, counted from 1
    std::uint32_t tile = 0;           ///< number of the tile; blocks of a band are in this order
    bool operator==(const StoredBlock&) const = default;
};

/// Forms that blocks share.
struct BlockForms {
    std::vector<FilterChain> chains;
    std::vector<Cut> cuts;
    bool operator==(const BlockForms&) const = default;
};

/// An opened data set that can be read. Rank 0 opens it. The other ranks deserialize() the bytes of
/// rank 0's serialize() and read neither the manifest nor HDF5. Immutable.
class DatasetIndex {
  public:
    /// Reads the manifest and each shard's index. libhdf5 opens a shard only if the file differs
    /// from the manifest's description. Then the damage is diagnosed; or, if the shard was
    /// rewritten, as h5repack does, its blocks are located again, with a warning that they have no
    /// hashes. Errors: E201, E216, E220, E222, E223 for folder and manifest; per shard E201, E202,
    /// E203 (not HDF5), E204 (cut short), E205, E207, E208, E212.
    static DatasetIndex open(const fs::path& folder);

    /// Makes an index of unchanged HDF5 files of other programs, in the order given. Each data set
    /// of `fields` has the sample as first dimension, and equal shapes and types in all files. A
    /// child process examines them (see lockstep-h5probe). The generated manifest has a digest of
    /// their names, sizes, times and layouts, so that a changed file is noticed. Warns of the
    /// guarantees that packed shards have and these lack. Errors: E201, E202, E203, E204, E205;
    /// E207 (no such data set), E208 (files differ), E209 (fields differ in samples), E210
    /// (labels), E212 (filters), E234 (layout or type), E235 (fields); E231, E232, E233.
    /// A field with files of its own has its rows there: they are joined by their number.
    static DatasetIndex open_foreign(const std::vector<fs::path>& files,
                                     const std::vector<FieldMapping>& fields);

    /// Opens the data of `--data` and `--field`: open(where) without fields, else
    /// open_foreign(foreign_files(where), fields). Several packed data sets, with commas between
    /// them, are one after another. Errors: also E208 where these differ in fields or classes; E106
    /// for fields of a packed data set.
    static DatasetIndex open(const fs::path& where, const std::vector<FieldMapping>& fields);

    /// Opens the data of `--test-data` and `--test-field`. A packed data set has its own fields.
    /// Foreign files have the fields of `own`, and those of the training data, `trained`, with
    /// other names.
    static DatasetIndex open_test(const fs::path& where,
                                  const std::vector<FieldMapping>& trained,
                                  const std::vector<FieldMapping>& own);

    /// Makes an index of known blocks, by field; `manifest_text` is for parse_manifest(). For tools
    /// that read part of a data set.
    static DatasetIndex of_blocks(const fs::path& folder,
                                  const std::string& manifest_text,
                                  std::vector<std::vector<StoredBlock>> blocks,
                                  BlockForms forms = {},
                                  ManifestKind kind = ManifestKind::packed);

    /// Returns the same data set with the mean and deviation that `fields` have, by name. Its
    /// digest stays that of the files.
    DatasetIndex with_statistics(const std::vector<Field>& fields) const;

    /// Returns bytes for deserialize() on other ranks.
    std::vector<std::byte> serialize() const;

    /// Reads the bytes of serialize(). Errors: E230 for other bytes; E222, E223.
    static DatasetIndex deserialize(std::span<const std::byte> bytes);

    const fs::path& path() const { return path_; }  ///< folder, or path as given
    std::string place() const;  ///< text for users: path(), or the only foreign file
    const Manifest& manifest() const { return manifest_; }        ///< generated for foreign files
    const std::string& name() const { return manifest_.name; }    ///< name of the data set
    const std::string& split() const { return manifest_.split; }  ///< "train", "test", ...
    const std::string& uuid() const { return manifest_.uuid; }    ///< made when it was packed

    /// Returns the manifest's digest: the part of the data that decides a run's bits.
    const std::string& digest() const { return manifest_.digest; }
    /// Returns the number of samples in all shards.
    std::uint64_t samples() const { return manifest_.samples; }

    /// Returns the fields in the manifest's order.
    const std::vector<Field>& fields() const { return manifest_.fields; }
    const std::vector<Shard>& shards() const { return manifest_.shards; }  ///< in order of samples

    /// Returns the position of the field called `name`. Errors: E207 naming the existing fields.
    std::size_t field_position(std::string_view name) const;

    /// Returns the field called `name`. Errors: E207.
    const Field& field(std::string_view name) const { return fields()[field_position(name)]; }

    /// Returns the blocks that the order permutes: manifest().block_rows each, independent of codec
    /// and shards. In foreign files each file begins a new one.
    std::vector<RowBlock> blocks() const;

    /// Returns the blocks of a field, ascending, without gaps; tiles of the same rows are
    /// neighbours.
    const std::vector<StoredBlock>& stored_blocks(std::size_t field) const {
        return stored_[field];
    }

    /// Returns the filters of blocks with codec `filters`, and the cuts of samples by chunks.
    const BlockForms& forms() const { return forms_; }

    /// Returns the cut of samples by the chunk of `block`; nullptr if it holds whole samples.
    const Cut* cut_of(const StoredBlock& block) const {
        return block.cut == 0 ? nullptr : &forms_.cuts.at(block.cut - 1U);
    }

    /// Returns the bytes of one row of a block of `field`: of its tile's part, without padding.
    std::uint64_t row_bytes_of(std::size_t field, const StoredBlock& block) const;

    /// Returns the filters of `block`, which is one of this index; Decoder::decode() reverses them.
    const FilterChain& chain_of(const StoredBlock& block) const;

    /// Returns the bytes of blocks `kept_in_index`: class numbers made of texts or one-hot rows.
    std::span<const std::byte> kept() const { return kept_; }

    /// Returns warnings for the user, e.g. that a shard was rewritten; open() has logged them.
    const std::vector<std::string>& warnings() const { return warnings_; }

    /// Returns the stamps of the shards' files before this process opened them; none after
    /// deserialize().
    const std::vector<FileStamp>& stamps() const { return stamps_; }

    /// Returns true if both describe the same data in the same way; stamps do not count.
    bool operator==(const DatasetIndex& other) const;

  private:
    friend class ForeignOpening;
    friend class FieldsOfFiles;
    friend class PackedSets;
    void check_blocks() const;
    void check_tiles(std::size_t field) const;
    void check_rows(const StoredBlock& block, std::uint64_t next) const;
    void check_bytes(std::size_t field, const StoredBlock& block) const;
    void append(std::size_t field, std::vector<StoredBlock>& blocks, const BlockForms& forms);

    /// Takes the manifest of indexes that were joined as `origin`; all blocks are there.
    void finish_joined(Manifest manifest, const std::string& origin);

    fs::path path_;
    std::string manifest_text_;
    Manifest manifest_;
    std::vector<std::vector<StoredBlock>> stored_;
    BlockForms forms_;
    std::vector<std::byte> kept_;
    std::vector<std::string> warnings_;
    std::vector<FileStamp> stamps_;
};

/// Texts for a data set of one dimension: UTF-8 of fixed length, shorter ones end in zeros.
struct TextDataset {
    std::string name;
    std::vector<std::string> texts;  ///< none: no data set
};

/// Makes the file, readable by HDF5 1.8 and later, with data set `name` of `shape`, which has at
/// least one element, and with those of texts. Returns where its values begin: they lie there in C
/// order, one behind the other, and are for anyone to write; until then they are 0. Equal arguments
/// give equal bytes. Errors: E401 and kin (it exists, or its folder does not), E402, E405.
std::uint64_t create_dataset_file(const fs::path& path,
                                  const std::string& name,
                                  ElementType type,
                                  const std::vector<std::int64_t>& shape,
                                  const std::vector<TextDataset>& texts = {});

}  // namespace lockstep
