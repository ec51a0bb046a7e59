// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"

#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

namespace lockstep {
namespace {

/// Version 1 writes "no limit" as the largest multiple of a page.
constexpr std::int64_t unlimited = std::int64_t{1} << 60;

std::optional<std::uint64_t> limit_in(const fs::path& file) {
    const auto value = parse_integer(text_of(file));
    if (!value || *value <= 0 || *value >= unlimited) return {};
    return static_cast<std::uint64_t>(*value);
}

// Of "KEY COUNT" in the file's lines; 0: there is none.
std::uint64_t count_of(const fs::path& file, std::string_view key) {
    std::istringstream words(text_of(file));
    std::uint64_t count = 0;
    for (std::string word; words >> word >> count;)
        if (word == key) return count;
    return 0;
}

// The smallest `figure` of folders that set a limit.
template <class Figure>
std::optional<std::uint64_t> smallest_limit(const fs::path& root, Figure&& figure) {
    std::optional<std::uint64_t> smallest;
    for (const auto& group : control_groups(root)) {
        if (!group.has("memory")) continue;
        const bool is_newer = group.version == 2;
        const auto* file = is_newer ? "memory.max" : "memory.limit_in_bytes";
        for (const auto& folder : folders_of(group, "memory", root))
            if (const auto limit = limit_in(folder / file)) {
                const std::uint64_t found = figure(folder, *limit, is_newer);
                smallest = std::min(smallest.value_or(found), found);
            }
    }
    return smallest;
}

std::optional<ControlGroup> group_of_line(const std::string& line) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) return {};
    ControlGroup group;
    group.controllers = line.substr(first + 1, second - first - 1);
    group.version = group.controllers.empty() ? 2 : 1;
    group.path = line.substr(second + 1);
    return group;
}

bool is_of_job(const fs::path& folder) {
    return folder.filename().string().starts_with("job_");
}

/// Adds what the folders from a process's own group upwards say. Version 2 counts kills in the
/// groups above, too, where other jobs' are: it ends at SLURM's group of the job, or at the first
/// limit where there is none.
void add_end(const ControlGroup& group, const std::vector<fs::path>& folders, MemoryEnd& end) {
    const bool is_newer = group.version == 2;
    const bool has_job = std::ranges::any_of(folders, is_of_job);
    end.is_of_job |= has_job;
    for (const fs::path& folder : folders) {
        const fs::path events = folder / (is_newer ? "memory.events" : "memory.oom_control");
        end.kills = std::max(end.kills, count_of(events, "oom_kill"));
        const auto limit = limit_in(folder / (is_newer ? "memory.max" : "memory.limit_in_bytes"));
        if (limit && limit <= end.limit.value_or(*limit)) {
            end.limit = limit;
            end.peak = limit_in(folder / (is_newer ? "memory.peak" : "memory.max_usage_in_bytes"));
        }
        if (has_job ? is_of_job(folder) : limit.has_value()) return;
    }
}

}  // namespace

bool ControlGroup::has(std::string_view controller) const {
    if (version == 2) return true;
    return std::ranges::count(split(controllers, ','), controller) > 0;
}

std::vector<ControlGroup> control_groups(const fs::path& root) {
    std::vector<ControlGroup> groups;
    for (const std::string& line : split(text_of(root / "proc/self/cgroup"), '\n'))
        if (auto group = group_of_line(line)) groups.push_back(std::move(*group));
    return groups;
}

std::vector<fs::path> folders_of(const ControlGroup& group,
                                 std::string_view controller,
                                 const fs::path& root) {
    auto mount = root / "sys/fs/cgroup";
    if (group.version == 1) mount /= controller;
    std::vector<fs::path> folders;
    for (auto below = group.path.relative_path();; below = below.parent_path()) {
        if (below.empty() || fs::is_directory(status_of(mount / below)))
            folders.push_back(mount / below);
        if (below.empty()) return folders;
    }
}

std::string text_of(const fs::path& path) {
    constexpr std::size_t limit = 1u << 20;
    std::ifstream file(path);
    std::string text;
    std::array<char, 4096> block{};
    while (text.size() < limit && (file.read(block.data(), block.size()), file.gcount() > 0)) {
        text.append(block.data(), static_cast<std::size_t>(file.gcount()));
    }
    text.erase(text.find_last_not_of(" \t\r\n") + 1);
    return text;
}

MemoryEnd control_group_memory_end(const fs::path& root) {
    MemoryEnd end;
    for (const auto& group : control_groups(root))
        if (group.has("memory")) add_end(group, folders_of(group, "memory", root), end);
    return end;
}

std::optional<std::uint64_t> control_group_memory_limit(const fs::path& root) {
    return smallest_limit(root, [](const fs::path&, std::uint64_t limit, bool) { return limit; });
}

std::optional<std::uint64_t> control_group_memory_left(const fs::path& root) {
    return smallest_limit(root, [](const fs::path& folder, std::uint64_t limit, bool is_newer) {
        const auto used =
            limit_in(folder / (is_newer ? "memory.current" : "memory.usage_in_bytes")).value_or(0);
        const std::string_view key = is_newer ? "inactive_file" : "total_inactive_file";
        const std::uint64_t kept = used - std::min(used, count_of(folder / "memory.stat", key));
        return limit - std::min(limit, kept);
    });
}

}  // namespace lockstep
