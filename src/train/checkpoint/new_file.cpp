// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/new_file.hpp"

#include "lockstep/core/error.hpp"

#include <cerrno>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace lockstep {

NewFile::NewFile(const fs::path& path)
    : path_(path),
      partial_(path.parent_path() / fmt::format(".{}.partial", path.filename().string())) {
    check(!fs::exists(path), [&] {
        return Error("E407",
                     fmt::format("'{}' exists", path.string()),
                     "nothing is overwritten",
                     "give another name, or remove it");
    });
    fd_ = open_for_writing(partial_, O_WRONLY | O_CREAT | O_TRUNC);
    if (!fd_) throw system_error("create", partial_, errno);
}

NewFile::~NewFile() {
    if (!is_finished_) ::unlink(partial_.c_str());
}

void NewFile::write(std::span<const std::byte> bytes) {
    write_all(fd_.value(), bytes, partial_);
    bytes_ += bytes.size();
    if (wrote_) wrote_(bytes_);
}

void NewFile::finish() {
    if (::fsync(fd_.value()) != 0) throw system_error("flush", partial_, errno);
    if (::rename(partial_.c_str(), path_.c_str()) != 0) throw system_error("create", path_, errno);
    is_finished_ = true;
    sync_path(path_.parent_path().empty() ? fs::path(".") : path_.parent_path());
}

}  // namespace lockstep
