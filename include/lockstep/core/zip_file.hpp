// SPDX-License-Identifier: Apache-2.0
/// @file
/// Reads zip archives, which files of NumPy and PyTorch are.
#pragma once

#include "lockstep/core/files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

/// Returns zip's CRC-32 (APPNOTE.TXT 4.4.7) of bytes that follow others with value `before`; 0:
/// none.
std::uint32_t zip_crc(std::span<const std::byte> bytes, std::uint32_t before = 0);

/// The bytes of one entry.
struct ZipEntry {
    std::uint64_t offset = 0;  ///< offset in the file
    std::uint64_t bytes = 0;
    std::uint64_t stored = 0;     ///< bytes in the file, fewer where they are deflated
    std::uint32_t crc = 0;        ///< CRC-32 of them
    std::uint64_t row = 0;        ///< where the table's row of it lies
    std::uint64_t local = 0;      ///< where its own header lies
    bool is_deflated = false;     ///< as RFC 1951 has it, for the caller to expand
    bool has_descriptor = false;  ///< the checksum follows the bytes, and is not in that header
};

/// What the reader of an archive expects.
struct ZipRules {
    bool has_outer_folder = false;  ///< names begin with a folder, which is left out
    bool takes_deflated = false;    ///< entries may be deflated
    /// Throws the error for a file that is not as it should be.
    void (*refuse)(const fs::path& path, const std::string& why);
};

/// An open zip archive, of uncompressed entries unless its rules take others (APPNOTE.TXT 6.3, with
/// Zip64). Archives may be untrusted: every size, offset and name is checked. What is wrong is
/// refused by the rules.
class ZipFile {
  public:
    /// Opens an archive, and checks its table of entries. Errors: E201, E202, E402 of the file.
    ZipFile(const fs::path& path, const ZipRules& rules);

    const fs::path& path() const { return path_; }            ///< path as given
    std::uint64_t file_bytes() const { return file_bytes_; }  ///< size of the archive

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

    /// Returns `count` bytes of the file from `offset` on, which must be there.
    std::string bytes_at(std::uint64_t offset, std::uint64_t count) const;

    /// Refuses the archive, as its rules do.
    template <class Why>
    void require(bool holds, Why&& why) const {
        if (!holds) rules_.refuse(path_, why());
    }

  private:
    void read_table();
    std::size_t read_entry(std::string_view table, std::size_t at, std::uint64_t table_offset);

    fs::path path_;
    ZipRules rules_;
    UniqueFd fd_;
    std::uint64_t file_bytes_ = 0;
    std::map<std::string, ZipEntry, std::less<>> entries_;
};

}  // namespace lockstep
