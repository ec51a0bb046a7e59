// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/control_group.hpp"

#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

namespace fs = std::filesystem;

/// Version 1 writes "no limit" as the largest multiple of a page.
constexpr std::int64_t unlimited = std::int64_t{1} << 60;

std::optional<std::uint64_t> limit_in(const fs::path& file) {
    const auto value = parse_integer(text_of(file));
    if (!value || *value <= 0 || *value >= unlimited) return {};
    return static_cast<std::uint64_t>(*value);
}

/// The smallest limit from `mount / group` up to `mount`. Inside a container the group's path is
/// often one of the host's and only the mount itself exists: then that is the group.
std::optional<std::uint64_t> smallest_limit(const fs::path& mount,
                                            const fs::path& group,
                                            const char* file) {
    std::optional<std::uint64_t> smallest;
    for (auto below = group.relative_path();; below = below.parent_path()) {
        const auto limit = limit_in(mount / below / file);
        if (limit) smallest = std::min(smallest.value_or(*limit), *limit);
        if (below.empty()) return smallest;
    }
}

bool has_controller(std::string_view names, std::string_view wanted) {
    while (!names.empty()) {
        const auto comma = names.find(',');
        if (names.substr(0, comma) == wanted) return true;
        if (comma == names.npos) break;
        names.remove_prefix(comma + 1);
    }
    return false;
}

/// `line` is "0::/path" (version 2) or "4:memory:/path" (version 1).
std::optional<std::uint64_t> limit_of_line(const fs::path& root, std::string_view line) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == line.npos || second == line.npos) return {};
    const auto controllers = line.substr(first + 1, second - first - 1);
    const fs::path group(line.substr(second + 1));
    const auto mount = root / "sys/fs/cgroup";
    if (controllers.empty()) return smallest_limit(mount, group, "memory.max");
    if (!has_controller(controllers, "memory")) return {};
    return smallest_limit(mount / "memory", group, "memory.limit_in_bytes");
}

}  // namespace

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

std::optional<std::uint64_t> control_group_memory_limit(const fs::path& root) {
    std::istringstream lines(text_of(root / "proc/self/cgroup"));
    std::optional<std::uint64_t> smallest;
    for (std::string line; std::getline(lines, line);) {
        const auto limit = limit_of_line(root, line);
        if (limit) smallest = std::min(smallest.value_or(*limit), *limit);
    }
    return smallest;
}

}  // namespace lockstep
