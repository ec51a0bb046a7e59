// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/slurm_facts.hpp"
#include "lockstep/core/numbers.hpp"

#include "slurm/text_parts.hpp"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_hosts = 65536;

// Cut at commas that are in no brackets; nothing where brackets do not pair.
std::optional<std::vector<std::string>> items_of(const std::string& text) {
    std::vector<std::string> items(1);
    int depth = 0;
    for (const char c : text) {
        depth += c == '[' ? 1 : c == ']' ? -1 : 0;
        if (depth < 0 || depth > 1) return std::nullopt;
        if (c == ',' && depth == 0)
            items.emplace_back();
        else
            items.back() += c;
    }
    return depth == 0 ? std::optional(items) : std::nullopt;
}

bool is_number(const std::string& text) {
    return !text.empty() && text.size() <= 9 && std::ranges::all_of(text, [](char c) {
        return std::isdigit(static_cast<unsigned char>(c));
    });
}

// "01-03" as 01, 02, 03 after `head`. Whether it is a range, and not too long.
bool add_range(const std::string& head, const std::string& range, std::vector<std::string>& names) {
    const auto ends = split_text(range, '-');
    if (ends.size() > 2 || !std::ranges::all_of(ends, is_number)) return false;
    const std::int64_t first = *parse_integer(ends.front()), last = *parse_integer(ends.back());
    if (last < first || last - first >= static_cast<std::int64_t>(most_hosts)) return false;
    for (std::int64_t i = first; i <= last; ++i)
        names.push_back(fmt::format("{}{:0{}}", head, i, ends.front().size()));
    return names.size() <= most_hosts;
}

// One item: a name, or one with brackets, after each of which more may follow.
bool add_item(const std::string& item, std::vector<std::string>& names) {
    std::vector<std::string> heads = {""};
    std::string rest = item;
    while (!rest.empty()) {
        const auto open = rest.find('[');
        for (std::string& head : heads) head += rest.substr(0, open);
        if (open == rest.npos) break;
        const auto close = rest.find(']', open);
        std::vector<std::string> longer;
        for (const std::string& head : heads)
            for (const std::string& range :
                 split_text(rest.substr(open + 1, close - open - 1), ','))
                if (!add_range(head, range, longer)) return false;
        heads = std::move(longer);
        rest = rest.substr(close + 1);
    }
    names.insert(names.end(), heads.begin(), heads.end());
    return !item.empty() && names.size() <= most_hosts;
}

}  // namespace

std::optional<std::vector<std::string>> expand_hosts(const std::string& text) {
    const auto items = items_of(text);
    if (!items) return std::nullopt;
    std::vector<std::string> names;
    for (const std::string& item : *items)
        if (!add_item(item, names)) return std::nullopt;
    return names;
}

}  // namespace lockstep
