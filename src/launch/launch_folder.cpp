// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/launch/supervise.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace lockstep {
namespace {

constexpr std::string_view folder_prefix = "lockstep-launch-";
constexpr const char* memory_folder = "/dev/shm";

// Returns the possible places of a folder, the best first.
std::vector<fs::path> possible_bases() {
    std::vector<fs::path> bases;
    if (::access(memory_folder, W_OK) == 0) bases.emplace_back(memory_folder);
    std::error_code none;
    const fs::path usual = fs::temp_directory_path(none);
    if (!none && ::access(usual.c_str(), W_OK) == 0) bases.push_back(usual);
    return bases;
}

// PMIx takes 12 MiB at once and without it neither fails nor goes on; messages between ranks need
// more with each.
std::uint64_t room_for(int ranks) {
    constexpr std::uint64_t mib = 1 << 20;
    return (16 + 2 * static_cast<std::uint64_t>(std::max(ranks, 1))) * mib;
}

Error no_room(int ranks, const std::string& found) {
    return Error(
        "E632",
        fmt::format("{} rank(s) need {} for Open MPI's own files, and no folder has so much room{}",
                    ranks,
                    bytes_text(room_for(ranks)),
                    found),
        "they are in /dev/shm or, if that is too small, below TMPDIR",
        "make /dev/shm larger (in a container: --shm-size), or set TMPDIR to a folder with "
        "room");
}

fs::path base_for(int ranks) {
    std::string found;
    for (const fs::path& base : possible_bases()) {
        const std::uint64_t room = free_bytes(base);
        if (room >= room_for(ranks)) {
            if (!found.empty())
                once(Level::warn,
                     "Open MPI's own files need {}{}: they go to {}, which may be slower",
                     bytes_text(room_for(ranks)),
                     found,
                     base.string());
            return base;
        }
        found += fmt::format(", {} has {}", base.string(), bytes_text(room));
    }
    throw no_room(ranks, found);
}

// The lock of a folder's owner goes with its process, whatever kills it.
UniqueFd lock_of(const fs::path& folder, int flags) {
    UniqueFd file(::open((folder / "lock").c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600));
    if (file && ::flock(file.value(), LOCK_EX | LOCK_NB) != 0) file.reset();
    return file;
}

bool is_abandoned(const fs::path& folder) {
    struct stat facts {};
    return folder.filename().string().starts_with(folder_prefix) &&
           ::lstat(folder.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
           facts.st_uid == ::geteuid() && static_cast<bool>(lock_of(folder, 0));
}

void remove_abandoned() {
    std::error_code ignored;
    std::vector<fs::path> found;
    for (const fs::path& base : possible_bases())
        for (const auto& entry : fs::directory_iterator(base, ignored))
            if (is_abandoned(entry.path())) found.push_back(entry.path());
    for (const fs::path& folder : found) fs::remove_all(folder, ignored);
}

}  // namespace

LaunchFolder::LaunchFolder(int ranks) {
    remove_abandoned();
    std::string name = base_for(ranks) / fmt::format("{}XXXXXX", folder_prefix);
    check(::mkdtemp(name.data()) != nullptr, [&] { return system_error("create", name, errno); });
    path_ = name;
    lock_ = lock_of(path_, O_CREAT);
}

LaunchFolder::~LaunchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

}  // namespace lockstep
