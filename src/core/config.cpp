// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/config.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#define TOML_EXCEPTIONS 1
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/split.hpp"

#include <toml++/toml.h>

namespace lockstep {
namespace {

std::string place(const std::string& file, const toml::source_position& at) {
    return fmt::format("{}:{}:{}", file, at.line, at.column);
}

std::string line_of(const std::string& text, std::size_t number) {
    const std::vector<std::string> lines = split(text, '\n');
    return number >= 1 && number <= lines.size() ? lines[number - 1] : "";
}

// Returns the indent up to a column (counted in characters from 1), tabs kept, so that a caret is
// at the right place.
std::string indent_up_to(std::string_view line, std::size_t column) {
    std::string indent;
    for (const char c : line) {
        const bool continues = (static_cast<unsigned char>(c) & 0xC0) == 0x80;
        if (continues) continue;
        if (indent.size() + 1 >= column) break;
        indent += c == '\t' ? '\t' : ' ';
    }
    indent.resize(std::max(indent.size(), std::max<std::size_t>(column, 1) - 1), ' ');
    return indent;
}

// Returns the place of the first byte that is not UTF-8; npos if there is none. (TOML's own checks
// are the parser's.)
std::size_t first_bad_byte(std::string_view text) {
    for (std::size_t at = 0, bytes = 0; at < text.size(); at += bytes) {
        const Character next = first_character(text.substr(at));
        if (next.bytes == 1 && next.letter >= 0x80) return at;
        bytes = next.bytes;
    }
    return text.npos;
}

constexpr std::size_t longest_shown = 200;

Error syntax_error(const std::string& file,
                   const std::string& text,
                   const toml::parse_error& error) {
    const auto at = error.source().begin;
    const std::string line = line_of(text, at.line);
    return Error(
        "E110",
        fmt::format("{}: {}", place(file, at), error.description().substr(0, longest_shown)),
        line.size() > longest_shown
            ? fmt::format("this line has {} bytes", line.size())
            : fmt::format("this line:\n    {}\n    {}^", line, indent_up_to(line, at.column)),
        "write it as KEY = VALUE, texts in quotes");
}

// Behind the text in quotes that begins at `at`. The three quotes that end a text of many lines may
// follow one or two that belong to it.
std::size_t end_of_quoted(std::string_view text, std::size_t at) {
    const char quote = text[at];
    const std::string three(3, quote);
    const bool is_long = text.substr(at, 3) == three;
    for (at += is_long ? 3 : 1; at < text.size(); ++at) {
        if (quote == '"' && text[at] == '\\') {
            ++at;
        } else if (!is_long && (text[at] == quote || text[at] == '\n')) {
            return at + 1;
        } else if (is_long && text.substr(at, 3) == three) {
            return std::min({text.find_first_not_of(quote, at), at + 5, text.size()});
        }
    }
    return text.size();
}

bool ends_key(char letter) {
    return std::string_view("\n=,[]{}").find(letter) != std::string_view::npos;
}

Error not_text(const std::string& file, const std::string& why) {
    return Error("E115",
                 fmt::format("'{}' is not UTF-8 text", file),
                 why,
                 "save it as UTF-8, or give another file");
}

std::string read_text(const fs::path& path) {
    if (!fs::is_regular_file(status_of(path)))
        throw Error("E116",
                    fmt::format("cannot read config '{}'", path.string()),
                    fs::is_directory(status_of(path)) ? "it is a folder"
                    : fs::exists(status_of(path))     ? "it is a pipe or a device, and no file"
                                                      : "it does not exist",
                    "give the path of a TOML file");
    std::string text = read_file(path, 1u << 20);
    if (const auto nul = text.find('\0'); nul != text.npos)
        throw not_text(path.string(), fmt::format("a zero byte at {}", nul));
    if (const auto bad = first_bad_byte(text); bad != text.npos)
        throw not_text(path.string(), fmt::format("byte {} belongs to no character", bad));
    return text;
}

// Returns a text or a finite number; nothing for another node.
std::optional<ConfigValue> text_or_number(const toml::node& node) {
    if (const auto whole = node.value_exact<std::int64_t>()) return *whole;
    if (const auto real = node.value_exact<double>(); real && std::isfinite(*real)) return *real;
    if (const auto text = node.value_exact<std::string>()) return *text;
    return std::nullopt;
}

// Returns the entry of a list whose items are all texts, or all numbers; nothing for another node.
std::optional<ConfigEntry> list_entry(const toml::node& node, const std::string& origin) {
    const toml::array* const items = node.as_array();
    if (!items) return std::nullopt;
    ConfigEntry entry{{}, origin, ConfigList::texts};
    std::vector<std::string> lines;
    for (const toml::node& item : *items) {
        const auto value = text_or_number(item);
        if (!value) return std::nullopt;
        const auto list = value->index() == 3 ? ConfigList::texts : ConfigList::numbers;
        if (!lines.empty() && list != entry.list) return std::nullopt;
        entry.list = list;
        lines.push_back(config_text(*value));
    }
    entry.value = fmt::format("{}", fmt::join(lines, "\n"));
    return entry;
}

void flatten(const toml::table& table,
             const std::string& prefix,
             const std::string& file,
             Config& out) {
    for (const auto& [name, node] : table) {
        const std::string key = prefix + std::string(name.str());
        const std::string origin = place(file, node.source().begin);
        check(key.size() <= longest_shown, [&] {
            return Error("E111",
                         fmt::format("{}: a key of {} bytes is unknown", origin, key.size()),
                         fmt::format("it begins with '{}'", key.substr(0, 40)),
                         "remove it");
        });
        if (const auto* inner = node.as_table()) {
            flatten(*inner, key + ".", file, out);
        } else if (const auto flag = node.value_exact<bool>()) {
            out[key] = {*flag, origin};
        } else if (const auto value = text_or_number(node)) {
            out[key] = {*value, origin};
        } else if (const auto list = list_entry(node, origin)) {
            out[key] = *list;
        } else {
            throw Error("E112",
                        fmt::format("{}: '{}' is {}",
                                    origin,
                                    key,
                                    node.is_floating_point() ? "not finite"
                                    : node.is_array()        ? "a list of neither texts nor numbers"
                                                             : "a date or a time"),
                        "settings are finite numbers, texts, true/false, and lists of texts or of "
                        "numbers",
                        "give one of these");
        }
    }
}

// Refuses keys and values nested so deep that TOML's parser would overflow the stack: it calls
// itself for each part of a key.
void check_depth(std::string_view text, const std::string& file) {
    constexpr std::size_t most_parts = 32, most_brackets = 32;
    std::size_t line = 1, dots = 0, brackets = 0;
    for (std::size_t at = 0; at < text.size();) {
        const char letter = text[at];
        if (letter == '"' || letter == '\'') {
            const std::size_t end = end_of_quoted(text, at);
            line += static_cast<std::size_t>(std::count(&text[at], text.data() + end, '\n'));
            if (text[end - 1] == '\n') dots = 0;
            at = end;
            continue;
        }
        if (letter == '#') {
            at = std::min(text.find('\n', at), text.size());
            continue;
        }
        if (letter == '[' || letter == '{') ++brackets;
        if ((letter == ']' || letter == '}') && brackets > 0) --brackets;
        if (letter == '\n') ++line;
        dots = letter == '.' ? dots + 1 : ends_key(letter) ? 0 : dots;
        check(dots < most_parts && brackets <= most_brackets, [&] {
            return Error("E110",
                         fmt::format("{}:{}: a key or value is nested too deep", file, line),
                         fmt::format("a key has at most {} parts here, and a value lies in at most "
                                     "{} brackets",
                                     most_parts,
                                     most_brackets),
                         "write it as KEY = VALUE, texts in quotes");
        });
        ++at;
    }
}

}  // namespace

Config read_config(const fs::path& path) {
    const std::string text = read_text(path);
    check_depth(text, path.string());
    try {
        Config config;
        flatten(toml::parse(text, path.string()), "", path.string(), config);
        return config;
    } catch (const toml::parse_error& error) {
        throw syntax_error(path.string(), text, error);
    }
}

std::string config_text(const ConfigValue& value) {
    if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
    if (const double* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
    return std::get<std::string>(value);
}

std::string config_type_name(const ConfigValue& value) {
    constexpr const char* names[] = {"true/false", "a whole number", "a real number", "text"};
    return names[value.index()];
}

}  // namespace lockstep
