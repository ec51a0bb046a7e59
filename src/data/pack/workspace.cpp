// SPDX-License-Identifier: Apache-2.0
#include "workspace.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/data/pack.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

// "NAME/" and "NAME" are the same folder.
fs::path without_slash(const fs::path& path) {
    const fs::path clean = fs::absolute(path).lexically_normal();
    return clean.has_filename() ? clean : clean.parent_path();
}

bool is_same_folder(int fd, const fs::path& path) {
    struct stat held {
    }, named{};
    return ::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
           held.st_ino == named.st_ino && held.st_dev == named.st_dev;
}

Error cannot_create(const fs::path& path, int reason) {
    return Error("E401",
                 fmt::format("cannot create '{}': {}", path.string(), std::strerror(reason)),
                 "",
                 "use a folder that you may write to");
}

}  // namespace

void check_is_free(const fs::path& target) {
    std::error_code failed;
    check(fs::symlink_status(target, failed).type() == fs::file_type::not_found || failed, [&] {
        return Error("E407",
                     fmt::format("'{}' exists already", target.string()),
                     "a data set is never overwritten",
                     "give another name, or remove it first");
    });
}

Workspace::Workspace(const fs::path& target) : target_(without_slash(target)) {
    check_is_free(target_);
    make_directories(target_.parent_path(), FolderAccess::umask);
    path_ = target_.parent_path() / fmt::format(".{}.partial", target_.filename().string());
    enter();
}

void Workspace::clear() {
    try {
        for (const fs::directory_entry& left : fs::directory_iterator(path_))
            fs::remove_all(left.path());
    } catch (const fs::filesystem_error& error) {
        throw cannot_create(path_, error.code().value());
    }
}

// Its owner may rename the folder between our opening and locking it: then look again.
void Workspace::enter() {
    do {
        if (::mkdir(path_.c_str(), 0777) != 0 && errno != EEXIST) throw cannot_create(path_, errno);
        lock_ = UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (!lock_ && errno == ENOENT) continue;
        if (!lock_) throw cannot_create(path_, errno);
        const bool is_taken =
            ::flock(lock_.value(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        check(!is_taken, [&] {
            return Error("E404",
                         fmt::format("'{}' is being written by another process", target_.string()),
                         fmt::format("it holds the lock of '{}'", path_.string()),
                         "wait until it is done, or give another name");
        });
    } while (!lock_ || !is_same_folder(lock_.value(), path_));
}

Workspace::~Workspace() {
    std::error_code ignored;
    if (!is_kept_) fs::remove_all(path_, ignored);
}

void Workspace::commit() {
    sync_path(path_);
    check_is_free(target_);
    if (::rename(path_.c_str(), target_.c_str()) != 0) throw system_error("create", target_, errno);
    is_kept_ = true;
    sync_path(target_.parent_path());
}

}  // namespace lockstep
