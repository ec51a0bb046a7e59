// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/files.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace lockstep {
namespace {

// Opening a pipe waits for somebody to write into it, and opening a device may do anything.
void check_has_content(const struct stat& facts, const fs::path& path) {
    const mode_t mode = facts.st_mode;
    check(S_ISREG(mode) || S_ISDIR(mode), [&] {
        return Error("E206",
                     fmt::format("'{}' is no file, but {}",
                                 path.string(),
                                 S_ISFIFO(mode)   ? "a pipe (FIFO)"
                                 : S_ISSOCK(mode) ? "a socket"
                                                  : "a device"),
                     "it is read at any offset, and more than once",
                     "give a regular file, or put one in its place");
    });
}

const char* fix_of_new(int reason) {
    return reason == ENAMETOOLONG ? "give a shorter name" : "use a folder that you may write to";
}

UniqueFd create_beside(const fs::path& path) {
    UniqueFd fd = open_for_writing(path, O_WRONLY | O_CREAT | O_TRUNC);
    if (const int reason = errno; !fd) {
        const Error error = system_error("write", path, reason);
        throw Error("E401", error.what(), error.why(), fix_of_new(reason));
    }
    return fd;
}

// A pipe that nobody reads is not waited for. Nothing of it can be flushed.
void write_pipe_or_device(const fs::path& path, std::string_view content) {
    const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (const int reason = errno; !fd)
        throw reason != ENXIO ? system_error("write", path, reason)
                              : Error("E206",
                                      fmt::format("nobody reads '{}'", path.string()),
                                      "it is a pipe (FIFO) or a socket",
                                      "start what reads it first, or give another file");
    ::fcntl(fd.value(), F_SETFL, 0);  // from here on wait for room
    write_all(fd.value(), std::as_bytes(std::span(content)), path);
}

Error leaves_directory(const fs::path& directory, const std::string& name, const char* why) {
    return Error("E220",
                 fmt::format("path '{}' in '{}' is not allowed", name, directory.string()),
                 why,
                 "restore the manifest from its source; do not edit it");
}

using namespace std::string_view_literals;

constexpr std::pair<std::string_view, FileKind> known_starts[] = {
    {"PK\x03\x04"sv, FileKind::zip},
    {"\x80\x02"sv, FileKind::pickle},
    {"\x80\x03"sv, FileKind::pickle},
    {"\x80\x04"sv, FileKind::pickle},
    {"\x80\x05"sv, FileKind::pickle},
    {"{"sv, FileKind::json},
    {"\x89HDF\r\n\x1a\n"sv, FileKind::hdf5},
    {"\x1f\x8b"sv, FileKind::gzip},
    {"\x28\xb5\x2f\xfd"sv, FileKind::zstd},
    {"\x93NUMPY"sv, FileKind::numpy},
    {"\x89PNG"sv, FileKind::png},
    {"\xff\xd8\xff"sv, FileKind::jpeg},
    {"\x7f"
     "ELF"sv,
     FileKind::program},
    {"<!DOCTYPE"sv, FileKind::web_page},
    {"<!doctype"sv, FileKind::web_page},
    {"<html"sv, FileKind::web_page},
    {"version https://git-lfs"sv, FileKind::lfs_pointer},
    {"CDF"sv, FileKind::netcdf_classic},
    {"\0\0\x08\x03"sv, FileKind::idx},
    {"\0\0\0\0\0\0\0\0"sv, FileKind::zeros},
};

// Returns the first name in a zip archive, as far as it is in `start`: a header of 30 bytes has its
// length at byte 26 (PKWARE, APPNOTE.TXT, 4.3.7).
std::string_view first_name(std::string_view start) {
    constexpr std::size_t header = 30, length_at = 26;
    if (start.size() < header) return "";
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(start[at]); };
    return start.substr(header, byte(length_at) | std::size_t{byte(length_at + 1)} << 8);
}

// Tells archives apart by the first entry that each library writes.
FileKind archive_kind(std::string_view start) {
    const std::string_view name = first_name(start);
    if (name.ends_with(".npy")) return FileKind::numpy_archive;
    if (name.ends_with("/data.pkl")) return FileKind::torch_save;
    return name.find("/code/") != name.npos || name.ends_with("/data/0") ? FileKind::torch_script
                                                                         : FileKind::zip;
}

constexpr std::pair<FileKind, std::string_view> meanings[] = {
    {FileKind::zip, "a zip archive"},
    {FileKind::numpy_archive, "NumPy's .npz, a zip archive of arrays"},
    {FileKind::torch_save, "a file of torch.save()"},
    {FileKind::torch_script, "a file of torch.jit.save()"},
    {FileKind::pickle, "Python's pickle, as torch.save() once wrote it"},
    {FileKind::json, "JSON"},
    {FileKind::hdf5, "HDF5"},
    {FileKind::gzip, "gzip"},
    {FileKind::zstd, "zstd"},
    {FileKind::numpy, "NumPy's .npy"},
    {FileKind::png, "a PNG image"},
    {FileKind::jpeg, "a JPEG image"},
    {FileKind::program, "a program"},
    {FileKind::web_page, "a web page"},
    {FileKind::lfs_pointer, "a Git LFS pointer"},
    {FileKind::netcdf_classic, "NetCDF classic"},
    {FileKind::idx, "IDX, as MNIST has it"},
    {FileKind::text, "text"},
    {FileKind::zeros, "zeros: it was never written"},
};

}  // namespace

UniqueFd& UniqueFd::operator=(UniqueFd&& other) noexcept {
    if (this != &other) {
        reset();
        fd_ = other.release();
    }
    return *this;
}

void UniqueFd::reset() {
    if (fd_ >= 0) ::close(release());
}

// Between the look at the path and the opening somebody may put a pipe there: hence O_NONBLOCK,
// which files ignore, and the second look.
UniqueFd open_for_reading(const fs::path& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) throw system_error("open", path, errno);
    check_has_content(facts, path);
    UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!fd || ::fstat(fd.value(), &facts) != 0) throw system_error("open", path, errno);
    check_has_content(facts, path);
    return fd;
}

UniqueFd open_for_writing(const fs::path& path, int flags) {
    constexpr int own = O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK;
    UniqueFd fd(::open(path.c_str(), flags | own, 0600));
    struct stat facts {};
    if (!fd && errno != ENXIO) return fd;  // ENXIO: a pipe that nobody reads
    if (fd && ::fstat(fd.value(), &facts) == 0 && S_ISREG(facts.st_mode)) return fd;
    fd.reset();
    errno = ENXIO;
    return fd;
}

FileStamp file_stamp(const fs::path& path) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) != 0) throw system_error("open", path, errno);
    constexpr std::int64_t ns_of_second = 1'000'000'000;
    return {static_cast<std::uint64_t>(facts.st_size),
            static_cast<std::uint64_t>(facts.st_ino),
            facts.st_mtim.tv_sec * ns_of_second + facts.st_mtim.tv_nsec};
}

std::size_t read_at(int fd, std::span<std::byte> out, std::uint64_t offset, const fs::path& path) {
    std::size_t done = 0;
    while (done < out.size()) {
        const ssize_t got =
            ::pread(fd, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw system_error("read", path, errno);
        if (got == 0) break;
        done += static_cast<std::size_t>(got);
    }
    return done;
}

std::string read_file(const fs::path& path, std::size_t limit_bytes) {
    const UniqueFd fd = open_for_reading(path);
    struct stat facts {};
    if (::fstat(fd.value(), &facts) != 0) throw system_error("read", path, errno);
    if (S_ISDIR(facts.st_mode)) throw system_error("read", path, EISDIR);
    const auto bytes = static_cast<std::uint64_t>(facts.st_size);
    check(bytes <= limit_bytes, [&] {
        return Error("E406",
                     fmt::format("'{}' has {} bytes", path.string(), bytes),
                     fmt::format("at most {} make sense here", limit_bytes),
                     "check that this is the file you mean");
    });
    std::string content(bytes, '\0');
    content.resize(read_at(fd.value(), std::as_writable_bytes(std::span(content)), 0, path));
    return content;
}

int try_write_all(int fd, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::write(fd, bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : EIO;
        bytes = bytes.subspan(static_cast<std::size_t>(put));
    }
    return 0;
}

int try_write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset) {
    for (std::size_t done = 0; done < bytes.size();) {
        const auto rest = bytes.subspan(done);
        const ssize_t put =
            ::pwrite(fd, rest.data(), rest.size(), static_cast<off_t>(offset + done));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return put < 0 ? errno : EIO;
        done += static_cast<std::size_t>(put);
    }
    return 0;
}

void write_all(int fd, std::span<const std::byte> bytes, const fs::path& path) {
    if (const int reason = try_write_all(fd, bytes)) throw system_error("write", path, reason);
}

void write_file_atomically(const fs::path& path, std::string_view content) {
    const fs::path temporary = fmt::format("{}.tmp-{}", path.string(), ::getpid());
    try {
        const UniqueFd fd = create_beside(temporary);
        write_all(fd.value(), std::as_bytes(std::span(content)), temporary);
        if (::fsync(fd.value()) != 0) throw system_error("flush", temporary, errno);
        if (::rename(temporary.c_str(), path.c_str()) != 0)
            throw system_error("replace", path, errno);
    } catch (...) {
        ::unlink(temporary.c_str());
        throw;
    }
    sync_path(path.has_parent_path() ? path.parent_path() : fs::path("."));
}

void write_named_file(const fs::path& place, std::string_view content) {
    if (fs::is_other(status_of(place))) return write_pipe_or_device(place, content);
    std::error_code unseen;
    for (const int fd : {STDOUT_FILENO, STDERR_FILENO})  // in a file, which others write, too
        if (fs::equivalent(place, fmt::format("/proc/self/fd/{}", fd), unseen))
            return write_all(fd, std::as_bytes(std::span(content)), place);
    write_file_atomically(end_of_links(place), content);
}

// The kernel is asked first: it follows no link of another user in a folder such as /tmp.
fs::path end_of_links(fs::path path) {
    for (std::error_code failed; fs::is_symlink(path, failed);) {
        const auto end = fs::status(path, failed);
        if (fs::is_directory(end)) break;
        if (!fs::status_known(end)) throw system_error("write", path, failed.value());
        path = path.parent_path() / fs::read_symlink(path, failed);
    }
    return path;
}

void sync_path(const fs::path& path) {
    const UniqueFd fd = open_for_reading(path);
    if (::fsync(fd.value()) != 0) throw system_error("flush", path, errno);
}

void make_directories(const fs::path& path, FolderAccess access) {
    const mode_t mode = access == FolderAccess::owner ? 0700 : 0777;
    if (path.empty() || ::mkdir(path.c_str(), mode) == 0) return;
    if (errno == ENOENT && path.has_parent_path() && path != path.parent_path()) {
        make_directories(path.parent_path(), access);
        if (::mkdir(path.c_str(), mode) == 0) return;
    }
    const int reason = errno;
    if (reason == EEXIST && fs::is_directory(status_of(path))) return;
    throw Error("E401",
                fmt::format("cannot create folder '{}': {}",
                            path.string(),
                            std::generic_category().message(reason)),
                "",
                reason == EEXIST || reason == ENOTDIR ? "a file has that name: give another one"
                                                      : fix_of_new(reason));
}

void check_no_link(const fs::path& path) {
    std::error_code unseen;
    if (!fs::is_symlink(path, unseen)) return;
    throw Error(
        "E220",
        fmt::format(
            "'{}' is a link to '{}'", path.string(), fs::read_symlink(path, unseen).string()),
        "files in this folder are written and deleted, and those of the link's target could belong "
        "to others",
        "remove the link, and move the folder that it leads to into its place; the run "
        "directory itself may be a link");
}

void make_own_folder(const fs::path& path) {
    make_directories(path);
    check_no_link(path);
}

std::uint64_t free_bytes(const fs::path& path) {
    struct statvfs facts {};
    if (::statvfs(path.c_str(), &facts) != 0) throw system_error("inspect", path, errno);
    if (facts.f_blocks == 0) return std::numeric_limits<std::uint64_t>::max();
    return static_cast<std::uint64_t>(facts.f_bavail) * facts.f_frsize;
}

fs::path path_beneath(const fs::path& directory, const std::string& name) {
    const fs::path relative(name);
    if (name.empty() || relative.is_absolute() || name.find('\0') != name.npos)
        throw leaves_directory(directory, name, "it must be a name inside the folder");
    for (const fs::path& part : relative)
        if (part == "..") throw leaves_directory(directory, name, "it leaves the folder");
    const fs::path full = directory / relative;
    std::error_code missing;
    const fs::path root = fs::weakly_canonical(directory, missing);
    if (std::ranges::mismatch(root, fs::weakly_canonical(full, missing)).in1 != root.end())
        throw leaves_directory(directory, name, "a link leads out of the folder");
    if (fs::exists(full, missing) && !fs::is_regular_file(full, missing))
        throw leaves_directory(directory, name, "it is not a regular file");
    return full;
}

FileKind file_kind(std::string_view start) {
    if (start.empty()) return FileKind::empty;
    for (const auto& [bytes, kind] : known_starts)
        if (start.starts_with(bytes)) return kind == FileKind::zip ? archive_kind(start) : kind;
    const bool is_text = std::ranges::all_of(start, [](unsigned char letter) {
        return letter >= 0x20 || letter == '\t' || letter == '\n' || letter == '\r';
    });
    return is_text ? FileKind::text : FileKind::unknown;
}

std::string file_start_text(std::string_view start) {
    if (start.empty()) return "it is empty";
    for (const auto& [kind, meaning] : meanings)
        if (kind == file_kind(start)) return fmt::format("it begins like {}", meaning);
    std::string hex;
    for (const char byte : start.substr(0, 8))
        hex += fmt::format("{}{:02x}", hex.empty() ? "" : " ", static_cast<unsigned char>(byte));
    return fmt::format("it begins with the bytes {}", hex);
}

}  // namespace lockstep
