// SPDX-License-Identifier: Apache-2.0
/// @file
/// Files that are either complete or absent, and their kinds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace lockstep {

namespace fs = std::filesystem;

/// Owns a file descriptor. Null state: -1. Move-only; the destructor closes and never throws.
class UniqueFd {
  public:
    UniqueFd() = default;

    /// Takes ownership of `fd`; -1 gives the null state.
    explicit UniqueFd(int fd) : fd_(fd) {}
    UniqueFd(UniqueFd&& other) noexcept : fd_(other.release()) {}
    UniqueFd& operator=(UniqueFd&& other) noexcept;
    ~UniqueFd() { reset(); }

    int value() const { return fd_; }                    ///< -1 in the null state
    explicit operator bool() const { return fd_ >= 0; }  ///< true if it owns a descriptor

    /// Returns the descriptor, still open, and gives up its ownership.
    int release() { return std::exchange(fd_, -1); }

    /// Closes the descriptor, if there is one.
    void reset();

  private:
    int fd_ = -1;
};

/// Returns the status of what `path` names or links to; none where it cannot be looked at.
inline fs::file_status status_of(const fs::path& path) {
    std::error_code unseen;
    return fs::status(path, unseen);
}

/// Opens a file for reading, close-on-exec. Errors: E201, E202, E206 (a pipe or device), E402.
UniqueFd open_for_reading(const fs::path& path);

/// Opens a regular file with `flags` of open(2); a new file is for its owner alone (0600). Follows
/// no link at `path` and does not wait at a pipe. Returns null and sets errno if that fails.
UniqueFd open_for_writing(const fs::path& path, int flags);

/// Facts by which a file that was rewritten or replaced is recognised.
struct FileStamp {
    std::uint64_t bytes = 0;   ///< size of the file
    std::uint64_t inode = 0;   ///< a different inode means that another file has the name
    std::int64_t time_ns = 0;  ///< time of the last write, since 1970
    bool operator==(const FileStamp&) const = default;
};

/// Returns the stamp of the file that `path` names or links to. Errors: E201, E202, E402.
FileStamp file_stamp(const fs::path& path);

/// Returns the whole content, at most `limit_bytes`. Errors: as open_for_reading; E406 if it is
/// larger.
std::string read_file(const fs::path& path, std::size_t limit_bytes = 64u << 20);

/// Fills `out` from `offset`, across short reads. Returns the bytes read: fewer only at its end.
std::size_t read_at(int fd, std::span<std::byte> out, std::uint64_t offset, const fs::path& path);

/// Writes all bytes at the current position. Returns 0, or the errno of the first failure.
int try_write_all(int fd, std::span<const std::byte> bytes);

/// Does the same from `offset` on, and leaves the current position as it is.
int try_write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset);

/// Does the same as try_write_all(). Errors: E405 (disk full), E402.
void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path);

/// Replaces `path` by `content`: temporary file next to it, fsync, rename, fsync of the folder.
/// Mode 0600. After a crash at any point the file has the whole old or the whole new content. A
/// link or pipe at `path`, which somebody may have planted, is replaced.
void write_file_atomically(const fs::path& path, std::string_view content);

/// Does the same for a file that the user named, at its end_of_links(). A pipe, a device and
/// /dev/stdout are not replaced, but written. Errors: E206 for a pipe that nobody reads.
void write_named_file(const fs::path& place, std::string_view content);

/// Returns where the links at `path` lead, whether something is there or not. A link to a folder
/// stays what it is. Errors: E202, E402 for a link that the kernel does not follow.
fs::path end_of_links(fs::path path);

/// Removes the folder `path` at its end, whatever ends it; nothing if `path` is empty.
class RemovedFolder {
  public:
    /// Owns the folder `path` from now on.
    explicit RemovedFolder(fs::path path) : path_(std::move(path)) {}
    ~RemovedFolder() {
        std::error_code ignored;
        if (!path_.empty()) fs::remove_all(path_, ignored);
    }
    RemovedFolder& operator=(RemovedFolder&&) = delete;

    const fs::path& path() const { return path_; }  ///< the folder
    /// Returns a path in it.
    fs::path operator/(const std::string& name) const { return path_ / name; }

  private:
    fs::path path_;
};

/// Calls fsync on a file or directory. Errors: E402.
void sync_path(const fs::path& path);

/// Users that may enter a new folder: its owner alone (0700), or everybody that the umask allows
/// (0777 less the umask).
enum class FolderAccess { owner, umask };

/// Creates `path` and all missing folders above it. Errors: E401 naming the folder that failed.
void make_directories(const fs::path& path, FolderAccess access = FolderAccess::owner);

/// Refuses a `path` that itself is a symbolic link; folders above it may be links. Errors: E220.
void check_no_link(const fs::path& path);

/// make_directories() for a folder whose content this program writes or deletes: it must not be a
/// link to a folder of somebody else. Errors: E401; E220.
void make_own_folder(const fs::path& path);

/// Returns the bytes that a user could still write on the file system of `path`. Returns the
/// largest number if the file system does not tell (some by FUSE).
std::uint64_t free_bytes(const fs::path& path);

/// Returns `name` below `directory`. Errors: E220 if `name` is absolute, leaves the directory, or
/// is no file.
fs::path path_beneath(const fs::path& directory, const std::string& name);

/// Kinds of files that users give by mistake as data sets or weights.
enum class FileKind {
    unknown,
    empty,
    zip,
    numpy_archive,  ///< .npz
    torch_save,     ///< a zip archive that torch.save() wrote
    torch_script,   ///< a zip archive that torch.jit.save() wrote
    pickle,         ///< Python objects, as torch.save() wrote them before PyTorch 1.6
    json,
    hdf5,
    gzip,
    zstd,
    numpy,  ///< .npy
    png,
    jpeg,
    program,
    web_page,
    lfs_pointer,  ///< the text that Git LFS keeps in place of a large file
    netcdf_classic,
    idx,  ///< images of MNIST's format
    zeros,
    text,  ///< text of no kind above
};

/// Number of first bytes that identify every kind.
constexpr std::size_t file_start_bytes = 512;

/// Returns the kind of a file that begins with `start`. If `start` is shorter than
/// `file_start_bytes` and the file is longer, an archive may read as FileKind::zip only.
FileKind file_kind(std::string_view start);

/// Returns words for messages: "it begins like a zip archive", "it is empty", "it begins with the
/// bytes 01 02".
std::string file_start_text(std::string_view start);

}  // namespace lockstep
