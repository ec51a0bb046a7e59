// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that are either wholly there or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace lockstep {

namespace fs = std::filesystem;

/// Owns a file descriptor. Null state: -1. Move-only; the destructor closes and never throws.
class UniqueFd {
  public:
    UniqueFd() = default;

    /// Takes `fd` over; -1: null.
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept;
    ~UniqueFd() { reset(); }

    int value() const { return fd_; }                    ///< -1 in the null state
    explicit operator bool() const { return fd_ >= 0; }  ///< it owns a descriptor

    /// Gives the descriptor away, open.
    int release();

    /// Closes what is there.
    void reset();

  private:
    int fd_ = -1;
};

/// Opens a file for reading, close-on-exec. Errors: E201, E202, E206 (a pipe or device), E402.
UniqueFd open_for_reading(const fs::path& path);

/// Opens a regular file with `flags` of open(2), one that is made for its owner alone (0600). It
/// follows no link at `path`, and waits at no pipe. Null and errno if that fails.
UniqueFd open_for_writing(const fs::path& path, int flags);

/// How a file looks from outside: one that was written again or replaced looks otherwise.
struct FileStamp {
    std::uint64_t bytes = 0;   ///< its size
    std::uint64_t inode = 0;   ///< another one: another file has that name
    std::int64_t time_ns = 0;  ///< of the last write, since 1970
    bool operator==(const FileStamp&) const = default;
};

/// Of the file that `path` names, or leads to. Errors: E201, E202, E402.
FileStamp file_stamp(const fs::path& path);

/// Whole content, at most `limit_bytes`. Errors: as open_for_reading; E406 if it is larger.
std::string read_file(const fs::path& path, std::size_t limit_bytes = 64u << 20);

/// Fills `out` from `offset`, across short reads. Returns bytes read (less only at end of file).
std::size_t read_at(int fd, std::span<std::byte> out, std::uint64_t offset, const fs::path& path);

/// Writes all bytes at the current position. Errors: E405 (disk full), E402.
void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path);

/// Replaces `path` by `content`: temporary file next to it, fsync, rename, fsync of the folder.
/// Mode 0600. After a crash at any point the old or the new content is there, whole.
void write_file_atomically(const fs::path& path, std::string_view content);

/// fsync of a file or directory. Errors: E402.
void sync_path(const fs::path& path);

/// Who may enter a new folder: its owner alone (0700), or whom the umask lets in (0777 less it).
enum class FolderAccess { owner, umask };

/// Makes `path` and what is missing above it. Errors: E401 naming what refuses.
void make_directories(const fs::path& path, FolderAccess access = FolderAccess::owner);

/// Errors: E220 if `path` itself is a symbolic link. What leads to it may have links.
void check_no_link(const fs::path& path);

/// make_directories() of a folder that is filled or emptied, so that it may be no link to somebody
/// else's. Errors: E401; E220.
void make_own_folder(const fs::path& path);

/// Bytes a user could still write on the file system of `path`; the largest number if the file
/// system does not say (some by FUSE).
std::uint64_t free_bytes(const fs::path& path);

/// `name` below `directory`, or Error E220 if it is absolute, leaves the directory, or is no file.
fs::path path_beneath(const fs::path& directory, const std::string& name);

}  // namespace lockstep
