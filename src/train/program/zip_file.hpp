// SPDX-License-Identifier: Apache-2.0
// A zip archive with uncompressed entries, as PyTorch writes them (APPNOTE.TXT 6.3, with Zip64).
// Archives may be untrusted: every size, offset and name is checked.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// E250: the reason why a file is no exported program that can be trained.
class ProgramRefusal : public Error {
  public:
    using Error::Error;
};

/// Returns the refusal of a file that is damaged, or no archive of torch.export.save().
ProgramRefusal damaged_program(const std::filesystem::path& path, const std::string& why);

/// The bytes of one entry.
struct ProgramEntry {
    std::uint64_t offset = 0;  ///< offset in the file
    std::uint64_t bytes = 0;
    std::uint32_t crc = 0;        ///< CRC-32 of them
    std::uint64_t row = 0;        ///< where the table's row of it lies
    std::uint64_t local = 0;      ///< where its own header lies
    bool has_descriptor = false;  ///< the checksum follows the bytes, and is not in that header
};

/// Other bytes of an entry, as many as it has.
struct ReplacedEntry {
    ProgramEntry entry;
    std::function<std::vector<std::byte>()> bytes;
};

/// An open archive. Its table of entries was checked when it was opened.
class ZipFile {
  public:
    /// Opens an archive. Errors: E201, E202, E402 of the file; E250 if its table of entries is
    /// invalid.
    explicit ZipFile(const std::filesystem::path& path);

    const std::filesystem::path& path() const { return path_; }
    std::uint64_t file_bytes() const { return file_bytes_; }

    /// Finds an entry by its name without PyTorch's outer folder; nullptr: there is none.
    const ProgramEntry* find(std::string_view name) const;

    /// Fills `out`, of entry.bytes. Errors: E250 if the bytes have another checksum.
    void read(const ProgramEntry& entry, std::span<std::byte> out) const;

    /// Returns the text of an entry. Errors: E250, also if it is missing or has more than
    /// `most_bytes`.
    std::string text(const std::string& name, std::uint64_t most_bytes) const;

    /// Writes the archive to `out` byte for byte, but for entries of `replaced`, by their offsets,
    /// and their checksums. Errors: E250 if entries overlap.
    void copy_with(const std::map<std::uint64_t, ReplacedEntry>& replaced, NewFile& out) const;

  private:
    std::string bytes_at(std::uint64_t offset, std::uint64_t count) const;
    void read_table();
    std::size_t read_entry(std::string_view table, std::size_t at, std::uint64_t table_offset);

    std::filesystem::path path_;
    UniqueFd fd_;
    std::uint64_t file_bytes_ = 0;
    std::map<std::string, ProgramEntry, std::less<>> entries_;
};

}  // namespace lockstep
