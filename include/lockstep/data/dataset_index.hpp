// SPDX-License-Identifier: Apache-2.0
/// @file
/// Where every block of a data set lies and how it is stored: opened once per job, sent to all
/// ranks as bytes.
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

/// A field and where it lies in each file.
struct FieldMapping {
    std::string name;       ///< what training calls it: "images", "labels"
    std::string hdf5_path;  ///< of the data set, e.g. "/x/data"
    /// A scalar field named "labels" is a label unless it says else.
    RowLayout layout = RowLayout::unstated;
    std::optional<CfValues> cf = {};  ///< nothing: numbers are taken as they are stored
    Links links = Links::refused;     ///< not of its text: one word is for all fields
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

    std::uint64_t tiles() const;           ///< of a band
    std::uint64_t chunk_elements() const;  ///< of one row of a chunk, with padding

    /// Elements of one row of a tile that belong to the sample.
    std::uint64_t elements_of(std::uint64_t tile) const;

    /// Whether every sample's size is at least 1, every chunk's too, and nothing overflows.
    bool is_sound() const;
};

/// Moves what belongs to samples to the front of `chunk`, `rows` rows of tile number `tile`,
/// padding left out, and returns it: [rows, elements_of(tile)].
std::span<std::byte> without_padding(const Cut& cut,
                                     std::uint64_t tile,
                                     std::size_t element_bytes,
                                     std::uint64_t rows,
                                     std::span<std::byte> chunk);

/// Copies rows of a tile without padding to where they belong in `samples`, as many whole rows.
void put_tile(const Cut& cut,
              std::uint64_t tile,
              std::size_t element_bytes,
              std::span<const std::byte> values,
              std::span<std::byte> samples);

/// The filters that are read. The numbers are HDF5's registered identifiers.
enum class FilterKind : std::uint16_t {
    deflate = 1,
    shuffle = 2,
    fletcher32 = 3,
    lzf = 32000,  ///< h5py's own
    blosc = 32001,
    lz4 = 32004,
    zstd = 32015,
    /// None of HDF5's: numbers that become the field's wider ones, or change their byte order.
    /// Only the first of a chain.
    widening = 65535,
    /// None either: numbers that stand for others, and become f32 (format/widening.hpp). Only the
    /// first of a chain, without a widening.
    unpacking = 65534,
};

/// One filter and what undoing it takes.
struct Filter {
    FilterKind kind = FilterKind::deflate;
    std::uint32_t element = 0;  ///< of shuffle: its bytes; of the last two: their code; else 0
    std::vector<std::uint64_t> values = {};  ///< of unpacking: by what; else none
    bool operator==(const Filter&) const = default;
};

/// In the order of writing; reading undoes the last one first. Empty: stored as it is.
using FilterChain = std::vector<Filter>;

/// Whether `kind` is the number of one of HDF5's filters that this build reads.
bool is_known_filter(std::uint64_t kind);

/// Whether `kind` is one that HDF5 has not: of elements that change when they are read.
bool is_own_filter(std::uint64_t kind);

/// "shuffle+deflate"; "none" for an empty chain.
std::string filter_text(const FilterChain& chain);

/// Why a chain cannot be undone: more than one filter that compresses, too many filters, a shuffle
/// of elements without size. "" if it can be.
std::string filter_fault(const FilterChain& chain);

/// In the place of a file's number: the block's bytes are kept in the index.
inline constexpr std::uint32_t kept_in_index = 0xffffffff;

/// A field's rows as they lie in a file; if chunks cut samples, one tile of them.
struct StoredBlock {
    std::uint64_t first_row = 0;      ///< global sample number
    std::uint64_t offset = 0;         ///< in the file
    std::uint64_t stored_bytes = 0;   ///< in the file
    std::uint64_t decoded_bytes = 0;  ///< rows, and a chunk's padding
    std::uint64_t hash = 0;           ///< XXH3-64 of the stored bytes, if `is_hashed`
    std::uint32_t rows = 0;           ///< samples in it
    std::uint32_t shard = 0;          ///< number of its file, or kept_in_index
    Codec codec = Codec::none;        ///< by which it is stored
    bool is_hashed = false;           ///< false: the file has no hash of it
    std::uint16_t chain = 0;          ///< if `codec` is `filters`: which of BlockForms::chains
    std::uint16_t cut = 0;            ///< of tiles: which of BlockForms::cuts, counted from 1
    std::uint32_t tile = 0;           ///< its number; blocks of a band are in this order
    bool operator==(const StoredBlock&) const = default;
};

/// What blocks have in common.
struct BlockForms {
    std::vector<FilterChain> chains;
    std::vector<Cut> cuts;
    bool operator==(const BlockForms&) const = default;
};

/// A data set that has been looked at and can be read. Rank 0 opens it; the other ranks
/// deserialize() what rank 0 serialize()d and touch neither the manifest nor HDF5. Immutable.
class DatasetIndex {
  public:
    /// Reads the manifest and each shard's index. libhdf5 opens a shard only if it is not the file
    /// that the manifest describes: then it is either diagnosed, or (rewritten, as h5repack does)
    /// its blocks are found again, with a warning that they carry no hashes.
    /// Errors: E201, E216, E220, E222, E223 for folder and manifest; per shard E201, E202,
    /// E203 (not HDF5), E204 (cut short), E205, E207, E208, E212.
    static DatasetIndex open(const std::filesystem::path& folder);

    /// An index of HDF5 files that others wrote, as they are: in the order given, each data set of
    /// `fields` with the sample as first dimension, of equal shapes and types in all files. They
    /// are looked at in a child process (see lockstep-h5probe); the manifest is made up, and its
    /// digest depends on their names, sizes, times and layouts, so that a changed file is noticed.
    /// Warns of the guarantees that packed shards have and these lack. Errors: E201, E202, E203,
    /// E204, E205; E207 (no such data set), E208 (files differ), E209 (fields differ in samples),
    /// E210 (labels), E212 (filters), E234 (layout or type), E235 (fields); E231, E232, E233.
    static DatasetIndex open_foreign(const std::vector<std::filesystem::path>& files,
                                     const std::vector<FieldMapping>& fields);

    /// What `--data` and `--field` name: open(where) without fields, else
    /// open_foreign(foreign_files(where), fields). Errors: also E106 for fields of a packed data
    /// set.
    static DatasetIndex open(const std::filesystem::path& where,
                             const std::vector<FieldMapping>& fields);

    /// What `--test-data` and `--test-field` name: a packed data set has fields of its own; files
    /// of others have `own` ones, and those of the training data, `trained`, with other names.
    static DatasetIndex open_test(const std::filesystem::path& where,
                                  const std::vector<FieldMapping>& trained,
                                  const std::vector<FieldMapping>& own);

    /// An index of blocks that are known already, by field; `manifest_text` is what
    /// parse_manifest() takes. For tools that read part of a data set.
    static DatasetIndex of_blocks(const std::filesystem::path& folder,
                                  const std::string& manifest_text,
                                  std::vector<std::vector<StoredBlock>> blocks,
                                  BlockForms forms = {},
                                  ManifestKind kind = ManifestKind::packed);

    /// For deserialize() on other ranks.
    std::vector<std::byte> serialize() const;

    /// Errors: E230 for bytes that are not what serialize() gave; E222, E223.
    static DatasetIndex deserialize(std::span<const std::byte> bytes);

    const std::filesystem::path& path() const { return path_; }  ///< its folder, or what was named
    std::string place() const;  ///< for users: path(), or the only foreign file
    const Manifest& manifest() const { return manifest_; }        ///< made up for foreign files
    const std::string& name() const { return manifest_.name; }    ///< of the data set
    const std::string& split() const { return manifest_.split; }  ///< "train", "test", ...
    const std::string& uuid() const { return manifest_.uuid; }    ///< made when it was packed

    /// The manifest's: what decides, of the data, a run's bits.
    const std::string& digest() const { return manifest_.digest; }
    std::uint64_t samples() const { return manifest_.samples; }  ///< of all shards

    /// In the manifest's order.
    const std::vector<Field>& fields() const { return manifest_.fields; }
    const std::vector<Shard>& shards() const { return manifest_.shards; }  ///< in order of samples

    /// Position of the field called `name`. Errors: E207 naming the fields there are.
    std::size_t field_position(std::string_view name) const;

    /// The field called `name`. Errors: E207.
    const Field& field(std::string_view name) const { return fields()[field_position(name)]; }

    /// The blocks that the order permutes: of manifest().block_rows, whatever codec and shards. In
    /// foreign files each file begins a new one.
    std::vector<RowBlock> blocks() const;

    /// By field, ascending, without gaps; tiles of the same rows side by side.
    const std::vector<StoredBlock>& stored_blocks(std::size_t field) const {
        return stored_[field];
    }

    /// The filters that blocks of codec `filters` went through, and how chunks cut samples.
    const BlockForms& forms() const { return forms_; }

    /// How the chunk of `block` cuts samples; nullptr if it holds whole ones.
    const Cut* cut_of(const StoredBlock& block) const {
        return block.cut == 0 ? nullptr : &forms_.cuts.at(block.cut - 1U);
    }

    /// Bytes of one row of a block of `field`: of its tile's part, without padding.
    std::uint64_t row_bytes_of(std::size_t field, const StoredBlock& block) const;

    /// The filters that `block`, one of this index, went through; Decoder::decode() undoes them.
    const FilterChain& chain_of(const StoredBlock& block) const;

    /// What blocks `kept_in_index` hold: class numbers that were made of texts or one-hot rows.
    std::span<const std::byte> kept() const { return kept_; }

    /// What a user should know, e.g. that a shard was rewritten; also logged by open().
    const std::vector<std::string>& warnings() const { return warnings_; }

    /// How the shards' files looked before this process opened them; none after deserialize().
    const std::vector<FileStamp>& stamps() const { return stamps_; }

    /// Whether both say the same of the same data; stamps do not count.
    bool operator==(const DatasetIndex& other) const;

  private:
    friend class ForeignOpening;
    void check_blocks() const;
    void check_tiles(std::size_t field) const;
    void check_rows(const StoredBlock& block, std::uint64_t next) const;
    void check_bytes(std::size_t field, const StoredBlock& block) const;
    void append(std::size_t field, std::vector<StoredBlock>& blocks, const BlockForms& forms);

    std::filesystem::path path_;
    std::string manifest_text_;
    Manifest manifest_;
    std::vector<std::vector<StoredBlock>> stored_;
    BlockForms forms_;
    std::vector<std::byte> kept_;
    std::vector<std::string> warnings_;
    std::vector<FileStamp> stamps_;
};

/// Makes the file, readable by HDF5 1.8 and later, with data set `name` of `shape`, which has at
/// least one element. Returns where its values begin: they lie there in C order, one behind the
/// other, and are for anyone to write; until then they are 0. Equal arguments give equal bytes.
/// Errors: E401 and kin (it exists, or its folder does not), E402, E405.
std::uint64_t create_dataset_file(const std::filesystem::path& path,
                                  const std::string& name,
                                  ElementType type,
                                  const std::vector<std::int64_t>& shape);

}  // namespace lockstep
