// SPDX-License-Identifier: Apache-2.0
/// @file
/// Named tensors as one file for other programs, and zip archives, which some of these files are.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

/// Returns zip's CRC-32 (APPNOTE.TXT 4.4.7) of bytes that follow others with value `before`; 0:
/// none.
std::uint32_t zip_crc(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// What an exported tensor's elements are, little-endian.
enum class ExportedElement { f32, i64, f64, f16, bf16, i32, i16, i8, u8, boolean, complex64 };

/// A tensor whose values are fetched when they are written.
struct ExportedTensor {
    std::string name;
    ExportedElement element = ExportedElement::f32;
    std::vector<std::int64_t> shape;
    std::function<std::vector<std::byte>()> values;

    std::uint64_t bytes() const;  ///< size of its values
};

/// A large file that gets its name when it is complete. It is written beside `path` as
/// .NAME.partial, which is removed if finish() is not reached.
class NewFile {
  public:
    /// Creates the partial file. Errors: E407 if `path` exists, E401.
    explicit NewFile(const std::filesystem::path& path);
    ~NewFile();
    NewFile(const NewFile&) = delete;
    NewFile& operator=(const NewFile&) = delete;

    void write(std::span<const std::byte> bytes);   ///< Errors: E402, E405
    std::uint64_t bytes() const { return bytes_; }  ///< bytes written so far

    /// Sets `wrote`, which is called with bytes() after each write.
    void tell(std::function<void(std::uint64_t)> wrote) { wrote_ = std::move(wrote); }

    /// Flushes and renames the file.
    void finish();

  private:
    std::filesystem::path path_, partial_;
    UniqueFd fd_;
    std::uint64_t bytes_ = 0;
    std::function<void(std::uint64_t)> wrote_;
    bool is_finished_ = false;
};

/// Returns the header of an NPY file in C order (numpy.lib.format, version 1).
std::string npy_header(ExportedElement element, const std::vector<std::int64_t>& shape);

/// Writes the format of https://github.com/huggingface/safetensors#format.
void write_safetensors(NewFile& file, std::span<const ExportedTensor> tensors);

/// What numpy.savez() writes: a ZIP archive, not compressed, of NAME.npy. Errors: E106 beyond 4
/// GiB, which need another kind of archive, and for bf16.
void write_npz(NewFile& file, std::span<const ExportedTensor> tensors);

/// The bytes of one entry.
struct ZipEntry {
    std::uint64_t offset = 0;  ///< offset in the file
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;        ///< CRC-32 of them
    std::uint64_t row = 0;        ///< where the table's row of it lies
    std::uint64_t local = 0;      ///< where its own header lies
    bool has_descriptor = false;  ///< the checksum follows the bytes, and is not in that header
};

/// Other bytes of an entry, as many as it has.
struct ReplacedEntry {
    ZipEntry entry;
    std::function<std::vector<std::byte>()> bytes;
};

/// What the reader of an archive expects.
struct ZipRules {
    bool has_outer_folder = false;  ///< names begin with a folder, which is left out
    /// Throws the error for a file that is not as it should be.
    void (*refuse)(const std::filesystem::path& path, const std::string& why);
};

/// An open zip archive with uncompressed entries (APPNOTE.TXT 6.3, with Zip64). Archives may be
/// untrusted: every size, offset and name is checked. What is wrong is refused by the rules.
class ZipFile {
  public:
    /// Opens an archive, and checks its table of entries. Errors: E201, E202, E402 of the file.
    ZipFile(const std::filesystem::path& path, const ZipRules& rules);

    const std::filesystem::path& path() const { return path_; }  ///< path as given
    std::uint64_t file_bytes() const { return file_bytes_; }     ///< size of the archive

    /// Returns all entries by name.
    const std::map<std::string, ZipEntry, std::less<>>& entries() const { return entries_; }

    /// Finds an entry by its name; nullptr: there is none.
    const ZipEntry* find(std::string_view name) const;

    /// Returns the first `most_bytes` of an entry, or all, without a look at its checksum.
    std::string first_bytes(const ZipEntry& entry, std::uint64_t most_bytes) const;

    /// Fills `out`, of entry.bytes, whose checksum must be right.
    void read(const ZipEntry& entry, std::span<std::byte> out) const;

    /// Returns the text of an entry, which must be there and have `most_bytes` or fewer.
    std::string text(const std::string& name, std::uint64_t most_bytes) const;

    /// Writes the archive to `out` byte for byte, but for entries of `replaced`, by their offsets,
    /// and their checksums. Entries must not overlap.
    void copy_with(const std::map<std::uint64_t, ReplacedEntry>& replaced, NewFile& out) const;

  private:
    std::string bytes_at(std::uint64_t offset, std::uint64_t count) const;
    void read_table();
    std::size_t read_entry(std::string_view table, std::size_t at, std::uint64_t table_offset);

    template <class Why>
    void require(bool holds, Why&& why) const {
        if (!holds) rules_.refuse(path_, why());
    }

    std::filesystem::path path_;
    ZipRules rules_;
    UniqueFd fd_;
    std::uint64_t file_bytes_ = 0;
    std::map<std::string, ZipEntry, std::less<>> entries_;
};

}  // namespace lockstep
