// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include "doctor/read_facts.hpp"

#include <algorithm>
#include <array>
#include <chrono>

#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

struct KnownFileSystem {
    std::uint32_t magic;
    const char* name;
};
// statfs(2), and each project's own headers for those that are not in linux/magic.h.
constexpr std::array known_file_systems{KnownFileSystem{NFS_SUPER_MAGIC, "nfs"},
                                        KnownFileSystem{0x0BD00BD0, "lustre"},
                                        KnownFileSystem{0x47504653, "gpfs"},
                                        KnownFileSystem{0x19830326, "beegfs"},
                                        KnownFileSystem{0x00C36400, "ceph"},
                                        KnownFileSystem{0xFF534D42, "cifs"},
                                        KnownFileSystem{0xFE534D42, "smb2"},
                                        KnownFileSystem{0x65735546, "fuse"},
                                        KnownFileSystem{0x5346414F, "afs"},
                                        KnownFileSystem{PROC_SUPER_MAGIC, "proc"},
                                        KnownFileSystem{SYSFS_MAGIC, "sysfs"},
                                        KnownFileSystem{CGROUP_SUPER_MAGIC, "cgroup"},
                                        KnownFileSystem{CGROUP2_SUPER_MAGIC, "cgroup"},
                                        KnownFileSystem{TMPFS_MAGIC, "tmpfs"},
                                        KnownFileSystem{OVERLAYFS_SUPER_MAGIC, "overlay"},
                                        KnownFileSystem{EXT4_SUPER_MAGIC, "ext4"},
                                        KnownFileSystem{0x58465342, "xfs"},
                                        KnownFileSystem{BTRFS_SUPER_MAGIC, "btrfs"}};

std::string file_system_of(const fs::path& path) {
    struct ::statfs facts {};
    if (::statfs(path.c_str(), &facts) != 0) return "";
    const auto magic = static_cast<std::uint32_t>(facts.f_type);
    const auto found = std::ranges::find(known_file_systems, magic, &KnownFileSystem::magic);
    return found == known_file_systems.end() ? "" : found->name;
}

/// Of the kernel's own files: root may write to the folder, and nothing can be made there.
bool takes_no_files(const std::string& file_system) {
    return file_system == "proc" || file_system == "sysfs" || file_system == "cgroup";
}

/// The folder itself, or what of it is there.
fs::path existing_part(fs::path path) {
    std::error_code ignored;
    while (!fs::exists(path, ignored) && path.has_relative_path()) path = path.parent_path();
    return path;
}

bool is_leftover_name(const std::string& name) {
    constexpr std::array beginnings{
        "vader_segment.", "sm_segment.", "nccl-", "torch_", "psm2_shm.", "psm3_shm.", "lockstep"};
    return std::ranges::any_of(beginnings,
                               [&](const char* each) { return name.starts_with(each); });
}

bool is_old_and_mine(const fs::path& file) {
    struct ::stat facts {};
    if (::stat(file.c_str(), &facts) != 0 || facts.st_uid != ::getuid()) return false;
    constexpr double hour_s = 3600;
    const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    return std::difftime(now, facts.st_mtime) > hour_s;
}

/// Everything that this user's processes have mapped, as one text.
std::string all_maps(const fs::path& root) {
    std::string text;
    std::error_code ignored;
    for (const auto& process : fs::directory_iterator(root / "proc", ignored))
        if (parse_integer(process.path().filename().string()))
            text += text_of(process.path() / "maps") + "\n";
    return text;
}

}  // namespace

FolderFacts folder_facts(const fs::path& root, const std::string& path) {
    FolderFacts folder{.path = path};
    const fs::path full =
        fs::path(path).is_absolute() ? root / fs::path(path).relative_path() : fs::absolute(path);
    struct ::stat facts {};
    folder.exists = ::stat(full.c_str(), &facts) == 0;
    if (folder.exists) folder.inode = facts.st_ino;
    const fs::path real = existing_part(full);
    std::error_code ignored;
    folder.is_file = !fs::is_directory(real, ignored);
    folder.file_system = file_system_of(real);
    folder.is_writable = !folder.is_file && ::access(real.c_str(), W_OK | X_OK) == 0 &&
                         !takes_no_files(folder.file_system);
    struct ::statvfs space {};
    if (::statvfs(real.c_str(), &space) != 0 || space.f_blocks == 0) return folder;
    folder.free_bytes = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
    folder.total_bytes = static_cast<std::uint64_t>(space.f_blocks) * space.f_frsize;
    if (space.f_files > 0) folder.free_inodes = space.f_favail;  // some have no fixed number
    return folder;
}

std::vector<std::string> stale_shared_files(const fs::path& root) {
    std::vector<std::string> candidates;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(root / "dev/shm", ignored)) {
        const std::string name = entry.path().filename().string();
        if (is_leftover_name(name) && is_old_and_mine(entry.path())) candidates.push_back(name);
    }
    if (candidates.empty()) return candidates;
    const std::string maps = all_maps(root);
    std::erase_if(candidates, [&](const auto& name) { return maps.find(name) != maps.npos; });
    std::ranges::sort(candidates);
    return candidates;
}

}  // namespace lockstep
