// SPDX-License-Identifier: Apache-2.0
// Requests to libhdf5 and its answers about a file, as plain values that travel between processes.
#pragma once

#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include "format/widening.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Data sets of a file; missing ones are no error.
struct FileRequest {
    fs::path path;
    std::vector<std::string> datasets;
    Links links = Links::refused;
    bool operator==(const FileRequest&) const = default;
};

/// `elsewhere`: virtual, or in external files; `linked`: behind a link into another file that was
/// not followed, so that nothing else is known.
enum class StorageLayout { missing, contiguous, chunked, other, elsewhere, linked };

/// One filter of a data set and its parameters.
struct FilterFacts {
    std::uint64_t kind = 0;
    std::vector<std::uint32_t> values;
    bool operator==(const FilterFacts&) const = default;
};

/// The chunks of a data set in the order of their begins, the last dimension running fastest.
struct ChunkFacts {
    std::vector<std::uint64_t> offsets, bytes;  ///< places in the file
    std::vector<std::uint64_t> skipped;         ///< bit i: filter i was skipped
    std::string fault;  ///< the reason why there are none, or why an existing data set is `missing`
    bool operator==(const ChunkFacts&) const = default;
};

/// The name of an enumeration's value.
struct EnumMember {
    std::string name;
    std::int64_t value = 0;
    bool operator==(const EnumMember&) const = default;
};

/// The CF attributes of a data set.
struct CfFacts {
    CfPacking packing;
    bool is_unsigned = false;  ///< `_Unsigned`: its numbers have no sign, for any type
    std::string fault;         ///< the reason why they cannot be followed; "" if they can
    bool operator==(const CfFacts&) const = default;
};

/// One data set.
struct DatasetFacts {
    static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

    StorageLayout layout = StorageLayout::missing;
    std::string file;                 ///< file of its values, if a link led there; "": none
    std::optional<ElementType> type;  ///< nothing if its elements do not exactly match a type
    std::optional<StoredNumber>
        number;  ///< nothing if they are no numbers; set for an enumeration, too
    std::vector<EnumMember> members;  ///< members of an enumeration
    bool is_text = false;             ///< text of fixed or variable length
    std::string type_text;            ///< name of any type, for people
    bool has_numbers = false;  ///< contains numbers, also in arrays or in a compound's members
    bool has_bytes = false;    ///< lists of bytes, of any length: usually encoded images
    std::vector<std::uint64_t> size;  ///< by dimension
    std::uint64_t offset =
        nowhere;  ///< place of contiguous data in the file; nowhere: never written
    std::vector<std::uint64_t> chunk;
    std::vector<FilterFacts> filters;
    bool leaves_partial_chunks = false;  ///< chunks that are partly outside skip all filters
    ChunkFacts chunks;
    std::optional<CfFacts> cf;  ///< for numbers that have any of these attributes

    /// If it is `elsewhere`, and links may be followed: the whole data sets that have its rows, in
    /// order, each with its file. Empty: it is built in another way.
    std::vector<DatasetFacts> parts;

    bool has_sound_chunks() const;      ///< a size in each dimension, and a valid number of them
    bool has_one_number_a_row() const;  ///< [n], or [n, 1, 1] with any number of ones
    bool is_column_of_texts() const;    ///< [n] or [n, 1] texts, which may be labels
    bool has_whole_rows() const;        ///< each chunk holds whole rows, and nothing but rows
    std::uint64_t chunk_count() const;  ///< number of sound chunks
    std::span<const DatasetFacts> stored() const;  ///< its parts, or itself
    bool operator==(const DatasetFacts&) const = default;
};

/// One file. Its own description exists only for a packed shard.
struct FileFacts {
    std::optional<std::string> uuid;
    std::optional<std::uint64_t> shard_index, samples, first_sample;
    std::vector<DatasetFacts> datasets;  ///< -
    bool operator==(const FileFacts&) const = default;
};

/// Rows of one data set, converted to `type` by libhdf5.
struct RowsRequest {
    fs::path path;
    std::string dataset;
    ElementType type = ElementType::u8;
    std::uint64_t first = 0, rows = 0;
    std::uint64_t bytes = 0;  ///< size of the answer
    Links links = Links::refused;
    bool operator==(const RowsRequest&) const = default;
};

/// Largest number of chunks of one data set.
inline constexpr std::uint64_t most_chunks = std::uint64_t{1} << 26;

/// Writes a FileRequest, RowsRequest, FileFacts or Lists.
template <class T>
std::vector<std::byte> to_bytes(const T& value);

/// Reads a request. Errors: E230 for bytes that were not made by to_bytes().
FileRequest request_from(std::span<const std::byte> bytes);
RowsRequest rows_request_from(std::span<const std::byte> bytes);

/// Reads facts. Errors: E230 for bytes that were not made by to_bytes(), for another number of data
/// sets than `datasets`, and for data sets of more than `most` chunks. That limit (a file has no
/// more chunks than bytes) exists because a few bytes can announce many chunks, which take memory.
FileFacts facts_from(std::span<const std::byte> bytes,
                     std::size_t datasets,
                     std::uint64_t most = most_chunks);

/// Largest size of a class's name in bytes. A longer text is returned with one byte more, by which
/// it is recognised.
inline constexpr std::size_t most_text_bytes = 1024;

/// Texts or bytes of each of some rows, of any length: unchanged, even if not UTF-8.
using Lists = std::vector<std::string>;

/// Reads lists. Errors: E230 for bytes not made by to_bytes(), or for another number of rows.
Lists lists_from(std::span<const std::byte> bytes, std::uint64_t rows);

}  // namespace lockstep
