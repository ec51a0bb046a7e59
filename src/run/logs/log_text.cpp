// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/log_text.hpp"

#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t longest_label = 32, level_width = 5;
constexpr std::string_view dim = "\033[2m", yellow = "\033[33m", red = "\033[1;31m",
                           usual = "\033[0m";

bool needs_care(std::string_view text) {
    unsigned found = 0;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        found |= static_cast<unsigned>(byte < 0x20) | static_cast<unsigned>(byte >= 0x7F);
    }
    return found != 0;
}

// Returns the length of the escape sequence with which `text` begins (ECMA-48); 0: there is none.
std::size_t escape_length(std::string_view text) {
    if (text.size() < 2 || text[0] != '\033') return 0;
    const auto is_within = [](char c, char first, char last) { return c >= first && c <= last; };
    std::size_t at = 2;
    if (text[1] == '[') {
        while (at < text.size() && is_within(text[at], 0x20, 0x3F)) ++at;
        return std::min(at + 1, text.size());
    }
    if (text[1] != ']') return 2;
    while (at < text.size() && text[at] != '\007' && text[at] != '\033') ++at;
    const bool is_two = at + 1 < text.size() && text[at] == '\033' && text[at + 1] == '\\';
    return std::min(at + (is_two ? 2 : 1), text.size());
}

std::string_view colour_of(Level level) {
    return level == Level::error ? red : level == Level::warn ? yellow : std::string_view();
}

}  // namespace

std::string plain_text(std::string_view text) {
    if (!needs_care(text)) return std::string(text);
    std::string kept;
    while (!text.empty()) {
        const std::size_t escape = escape_length(text);
        if (escape == 0) kept += text.front();
        text.remove_prefix(std::max<std::size_t>(escape, 1));
    }
    return printable(kept);
}

LogText::LogText(const LogStyle& style) : style_(style) {
    const std::string all = style.ranks > 1 ? fmt::format("[0-{}]", style.ranks - 1) : "[0]";
    label_width_ = std::max<std::size_t>(all.size(), style.ranks > 1 ? 5 : 3);
}

std::string LogText::ranks_label(const FoldedLine& line) const {
    if (line.kind == LogKind::launcher)
        return style_.names_hosts ? fmt::format("[launcher {}]", plain_text(line.host))
                                  : "[launcher]";
    if (line.is_for_all && style_.ranks > 1) return "[all]";
    const std::vector<int> ranks = line.ranks();
    if (ranks.size() == 1 && style_.names_hosts && !line.host.empty())
        return fmt::format("[{} {}]", ranks.front(), plain_text(line.host));
    std::string label = "[" + fold_ranks(ranks) + "]";
    if (label.size() > longest_label)
        label = fmt::format("[{} of {}: {},...]", ranks.size(), style_.ranks, ranks.front());
    return label;
}

void LogText::append_time(std::string& out, double time_s) {
    const auto millis = static_cast<std::int64_t>(std::floor(time_s * 1000));
    const std::int64_t second = millis / 1000;
    if (second != second_) {
        second_ = second;
        second_text_ = utc_text(static_cast<double>(second)).substr(0, 20);
    }
    const auto rest = static_cast<int>(millis - second * 1000);
    out += second_text_;
    for (const int digit : {rest / 100, rest / 10 % 10, rest % 10})
        out += static_cast<char>('0' + digit);
    out += 'Z';
}

void LogText::append(std::string& out, const FoldedLine& line, std::string_view mark) {
    const bool is_coloured = style_.colours == Colours::on;
    const std::string_view colour = is_coloured ? colour_of(line.level) : std::string_view();
    const std::string label = ranks_label(line);
    out += mark;
    if (is_coloured) out += dim;
    append_time(out, line.time_s);
    out += ' ';
    out += label;
    out.append(label_width_ > label.size() ? label_width_ - label.size() : 0, ' ');
    if (is_coloured) out += usual;
    out += ' ';
    out += colour;
    const std::string_view word =
        line.kind == LogKind::captured ? std::string_view("stderr") : level_name(line.level);
    out += word;
    out.append(word.size() < level_width ? level_width - word.size() + 1 : 1, ' ');
    if (!line.code.empty()) out += plain_text(line.code) + ": ";
    if (needs_care(line.text))
        out += plain_text(line.text);
    else
        out += line.text;
    if (!line.why.empty()) out += "; " + plain_text(line.why);
    if (line.times > 1) out += fmt::format(" ({} times)", line.times);
    if (!colour.empty()) out += usual;
    out += '\n';
}

}  // namespace lockstep
