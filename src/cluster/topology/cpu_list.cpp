// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/cpu_list.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include <set>

namespace lockstep {
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
