// SPDX-License-Identifier: Apache-2.0
#include "spool.hpp"

#include "lockstep/core/error.hpp"

#include <cerrno>
#include <cstdlib>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::size_t spool_buffer_bytes = std::size_t{1} << 20;

// Not every file system has nameless files; then the name goes at once.
UniqueFd nameless_file(const fs::path& folder) {
    UniqueFd fd(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (fd) return fd;
    std::string name = folder / ".lockstep-XXXXXX";
    fd = UniqueFd(::mkostemp(name.data(), O_CLOEXEC));
    const int reason = errno;
    check(static_cast<bool>(fd), [&] {
        return Error("E401",
                     fmt::format("cannot make a temporary file in '{}'", folder.string()),
                     system_error("create", folder, reason).what(),
                     "set TMPDIR to a folder with room for the input's rows");
    });
    ::unlink(name.c_str());
    return fd;
}

fs::path scratch_folder(const fs::path& folder) {
    if (!folder.empty()) return folder;
    std::error_code failed;
    const fs::path usual = fs::temp_directory_path(failed);
    return failed ? fs::path("/tmp") : usual;
}

}  // namespace

Spool::Spool(const fs::path& folder)
    : path_(scratch_folder(folder) / "(temporary rows)"), fd_(nameless_file(path_.parent_path())) {
    buffer_.reserve(spool_buffer_bytes);
}

void Spool::append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > spool_buffer_bytes) flush();
    if (bytes.size() >= spool_buffer_bytes) {
        write_all(fd_.value(), bytes, path_);
        written_ += bytes.size();
        return;
    }
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

void Spool::flush() {
    write_all(fd_.value(), buffer_, path_);
    written_ += buffer_.size();
    buffer_.clear();
}

std::shared_ptr<const InputFile> Spool::finish() {
    flush();
    return std::make_shared<const InputFile>(std::move(fd_), path_);
}

}  // namespace lockstep
