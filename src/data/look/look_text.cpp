// SPDX-License-Identifier: Apache-2.0
#include "look_text.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::vector<std::string> groups_of(const std::string& name) {
    std::vector<std::string> groups;
    for (const std::string& part : split(name, '/'))
        if (!part.empty()) groups.push_back(part);
    if (!groups.empty()) groups.pop_back();
    return groups;
}

}  // namespace

std::string wrapped(const std::vector<std::string>& parts,
                    std::size_t indent,
                    std::size_t columns) {
    std::string text, line(indent, ' ');
    bool is_begun = false;
    for (const std::string& part : parts) {
        if (part.empty()) continue;
        if (is_begun && line.size() + 2 + part.size() > columns) {
            text += line + "\n";
            line = std::string(indent + 4, ' ');
            is_begun = false;
        }
        line += (is_begun ? "  " : "") + part;
        is_begun = true;
    }
    return text + line + "\n";
}

std::pair<std::string, std::size_t> group_lines(const std::string& name,
                                                const std::string& before) {
    const std::vector<std::string> groups = groups_of(name), earlier = groups_of(before);
    const auto common = std::ranges::mismatch(groups, earlier).in1 - groups.begin();
    std::string text;
    for (auto depth = static_cast<std::size_t>(common); depth < groups.size(); ++depth)
        text += std::string(2 * depth, ' ') + printable(groups[depth]) + "/\n";
    return {text, groups.size()};
}

std::string histogram_text(const std::vector<ClassCount>& classes, std::size_t columns) {
    constexpr std::size_t most_lines = 20, most_bar = 40;
    std::size_t name_width = 1, count_width = 1;
    std::uint64_t largest = 1;
    for (const ClassCount& each : classes) {
        name_width = std::max(name_width, printable(each.name).size());
        count_width = std::max(count_width, grouped(each.count).size());
        largest = std::max(largest, each.count);
    }
    name_width = std::min<std::size_t>(name_width, 24);
    const std::size_t taken = name_width + count_width + 6;
    const std::size_t bar =
        std::clamp<std::size_t>(columns > taken ? columns - taken : 1, 1, most_bar);
    std::string text;
    for (std::size_t i = 0; i < std::min(classes.size(), most_lines); ++i) {
        const ClassCount& each = classes[i];
        const std::size_t length = (each.count * bar + largest - 1) / largest;
        text += fmt::format("  {:<{}}  {:>{}}  {}\n",
                            printable(each.name),
                            name_width,
                            grouped(each.count),
                            count_width,
                            std::string(length, '#'));
    }
    if (classes.size() > most_lines)
        text += fmt::format("  and {} more\n", grouped(classes.size() - most_lines));
    return text;
}

}  // namespace lockstep
