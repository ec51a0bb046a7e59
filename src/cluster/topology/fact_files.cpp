// SPDX-License-Identifier: Apache-2.0
#include "fact_files.hpp"

#include "lockstep/cluster/node_facts.hpp"
#include "lockstep/core/control_group.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <set>
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

namespace {

constexpr std::int64_t largest_cpu = 1 << 16;

bool add_range(std::string_view range, std::set<int>& cpus) {
    const auto dash = range.find('-');
    const auto first = parse_integer(range.substr(0, dash));
    const auto last = dash == range.npos ? first : parse_integer(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > largest_cpu) return false;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<int>(cpu));
    return true;
}

}  // namespace

std::optional<std::vector<int>> parse_cpu_list(std::string_view text) {
    std::set<int> cpus;
    while (!text.empty()) {
        const auto comma = text.find(',');
        if (!add_range(text.substr(0, comma), cpus)) return {};
        text = comma == text.npos ? std::string_view{} : text.substr(comma + 1);
    }
    return std::vector<int>(cpus.begin(), cpus.end());
}

std::string cpu_list_text(const std::vector<int>& cpus) {
    return cpus.empty() ? "-" : fold_ranks(cpus);
}

}  // namespace lockstep
