// SPDX-License-Identifier: Apache-2.0
// What is asked of libhdf5 and what it says about a file, as plain values that travel between
// processes.
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

/// Which data sets of which file; those that are not there are no error.
struct FileRequest {
    std::filesystem::path path;
    std::vector<std::string> datasets;
    Links links = Links::refused;
    bool operator==(const FileRequest&) const = default;
};

/// `elsewhere`: virtual, or in external files; `linked`: behind a link into another file that was
/// not followed, so that nothing else is known.
enum class StorageLayout { missing, contiguous, chunked, other, elsewhere, linked };

/// Numbers as a file has them.
struct NumberFacts {
    std::uint64_t bytes = 0;
    bool is_whole = false, has_sign = false, is_big_endian = false;
    bool is_usual =
        false;  ///< over all bits, of 1 to 8 bytes: two's complement, IEEE 754, bfloat16
    bool is_brain = false;  ///< bfloat16
    bool operator==(const NumberFacts&) const = default;
};

/// One filter of a data set and the values it was given.
struct FilterFacts {
    std::uint64_t kind = 0;
    std::vector<std::uint32_t> values;
    bool operator==(const FilterFacts&) const = default;
};

/// The chunks of a data set in the order of their beginnings, the last dimension running fastest.
struct ChunkFacts {
    std::vector<std::uint64_t> offsets, bytes;  ///< in the file
    std::vector<std::uint64_t> skipped;         ///< bit i: filter i was skipped
    std::string fault;  ///< why there are none, or why a data set that is there is `missing`
    bool operator==(const ChunkFacts&) const = default;
};

/// A name that an enumeration gives to a value.
struct EnumMember {
    std::string name;
    std::int64_t value = 0;
    bool operator==(const EnumMember&) const = default;
};

/// What a data set's attributes of the CF conventions say.
struct CfFacts {
    CfPacking packing;
    bool is_unsigned = false;  ///< `_Unsigned`: its numbers have no sign, whatever their type says
    std::string fault;         ///< why they cannot be followed; "" if they can
    bool operator==(const CfFacts&) const = default;
};

/// One data set.
struct DatasetFacts {
    static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

    StorageLayout layout = StorageLayout::missing;
    std::string file;                   ///< that a link led into, where its values lie; "": none
    std::optional<ElementType> type;    ///< nothing if its elements are not exactly of one
    std::optional<NumberFacts> number;  ///< nothing if they are no numbers; of an enumeration, too
    std::vector<EnumMember> members;    ///< of an enumeration
    bool is_text = false;               ///< of fixed or variable length
    std::string type_text;              ///< of any type, for people
    bool has_numbers = false;           ///< are any, also of arrays or of a compound's members
    bool has_bytes = false;             ///< lists of bytes, of any length: as a rule encoded images
    std::vector<std::uint64_t> size;    ///< by dimension
    std::uint64_t offset = nowhere;     ///< in the file, of contiguous data; nowhere: never written
    std::vector<std::uint64_t> chunk;
    std::vector<FilterFacts> filters;
    bool leaves_partial_chunks = false;  ///< chunks that are partly outside skip all filters
    ChunkFacts chunks;
    std::optional<CfFacts> cf;  ///< of numbers that have any of these attributes

    /// Where it is `elsewhere`, and links may be followed: whole data sets that have its rows, one
    /// after the other, each with its file. Empty: it is made in another way.
    std::vector<DatasetFacts> parts;

    bool has_sound_chunks() const;      ///< a size in each dimension, and how many there are fits
    bool has_one_number_a_row() const;  ///< [n], or [n, 1, 1] of any number of ones
    bool has_whole_rows() const;        ///< each chunk holds whole rows, and nothing but rows
    std::uint64_t chunk_count() const;  ///< of sound chunks
    std::span<const DatasetFacts> stored() const;  ///< its parts, or itself
    bool operator==(const DatasetFacts&) const = default;
};

/// One file. What it says about itself is only there if it is a packed shard.
struct FileFacts {
    std::optional<std::string> uuid;
    std::optional<std::uint64_t> shard_index, samples, first_sample;
    std::vector<DatasetFacts> datasets;  ///< as requested
    bool operator==(const FileFacts&) const = default;
};

/// Rows of one data set, converted to `type` by libhdf5.
struct RowsRequest {
    std::filesystem::path path;
    std::string dataset;
    ElementType type = ElementType::u8;
    std::uint64_t first = 0, rows = 0;
    std::uint64_t bytes = 0;  ///< of the answer
    Links links = Links::refused;
    bool operator==(const RowsRequest&) const = default;
};

/// No file has more chunks of one data set.
inline constexpr std::uint64_t most_chunks = std::uint64_t{1} << 26;

std::vector<std::byte> to_bytes(const FileRequest& request);
std::vector<std::byte> to_bytes(const RowsRequest& request);
std::vector<std::byte> to_bytes(const FileFacts& facts);

/// Errors: E230 for bytes that were not made by to_bytes().
FileRequest request_from(std::span<const std::byte> bytes);
RowsRequest rows_request_from(std::span<const std::byte> bytes);

/// Errors: E230 for bytes that were not made by to_bytes(), for another number of data sets than
/// `datasets`, and for data sets of more than `most` chunks (a file has no more than bytes): a few
/// bytes can announce many chunks, which then take memory.
FileFacts facts_from(std::span<const std::byte> bytes,
                     std::size_t datasets,
                     std::uint64_t most = most_chunks);

/// A class's name has at most so many bytes. Of a longer text one more is given, by which it is
/// known.
inline constexpr std::size_t most_text_bytes = 1024;

/// Which text each of some rows has.
struct Texts {
    std::vector<std::string> distinct;  ///< bytes as they are, also such as are not UTF-8
    std::vector<std::uint32_t> rows;    ///< by row: its number in `distinct`
    bool operator==(const Texts&) const = default;
};

std::vector<std::byte> to_bytes(const Texts& texts);

/// Errors: E230 for bytes that were not made by to_bytes(), or of another number of rows.
Texts texts_from(std::span<const std::byte> bytes, std::uint64_t rows);

}  // namespace lockstep
