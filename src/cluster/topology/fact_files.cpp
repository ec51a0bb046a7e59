// SPDX-License-Identifier: Apache-2.0
#include "fact_files.hpp"

#include "lockstep/cluster/cpu_list.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <sstream>

namespace lockstep {

std::string value_of(const std::string& text, std::string_view key) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const auto colon = line.find(':');
        if (colon == line.npos || !line.starts_with(key)) continue;
        if (line.find_last_not_of(" \t", colon - 1) + 1 != key.size()) continue;
        const auto begin = line.find_first_not_of(" \t", colon + 1);
        return begin == line.npos ? "" : line.substr(begin);
    }
    return "";
}

std::vector<std::filesystem::path> entries_of(const std::filesystem::path& directory) {
    std::error_code missing;
    std::vector<std::filesystem::path> entries;
    for (const auto& entry : std::filesystem::directory_iterator(directory, missing)) {
        entries.push_back(entry.path());
    }
    std::ranges::sort(entries);
    return entries;
}

std::optional<std::vector<int>> cpu_list_in(const std::filesystem::path& file) {
    const auto text = text_of(file);
    if (text.empty()) return {};
    return parse_cpu_list(text);
}

std::int64_t integer_in(const std::filesystem::path& file, std::int64_t otherwise) {
    return parse_integer(text_of(file)).value_or(otherwise);
}

}  // namespace lockstep
