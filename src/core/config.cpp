// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/config.hpp"

#include <sstream>

#include <fmt/format.h>
#define TOML_EXCEPTIONS 1
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"

#include <toml++/toml.h>

namespace lockstep {
namespace {

std::string place(const std::string& file, const toml::source_position& at) {
    return fmt::format("{}:{}:{}", file, at.line, at.column);
}

std::string line_of(const std::string& text, std::size_t number) {
    std::istringstream lines(text);
    std::string line;
    for (std::size_t i = 0; i < number; ++i)
        if (!std::getline(lines, line)) return "";
    return line;
}

Error syntax_error(const std::string& file,
                   const std::string& text,
                   const toml::parse_error& error) {
    const auto at = error.source().begin;
    const std::string line = line_of(text, at.line);
    const std::size_t column = at.column > 0 ? at.column - 1 : 0;
    return Error("E110",
                 fmt::format("{}: {}", place(file, at), error.description()),
                 fmt::format("this line:\n    {}\n    {}^", line, std::string(column, ' ')),
                 "write it as KEY = VALUE, texts in quotes");
}

Error not_text(const std::string& file, const std::string& why) {
    return Error("E115",
                 fmt::format("'{}' is not UTF-8 text", file),
                 why,
                 "save it as UTF-8, or give another file");
}

std::string read_text(const fs::path& path) {
    std::error_code missing;
    if (!fs::is_regular_file(path, missing))
        throw Error("E116",
                    fmt::format("cannot read config '{}'", path.string()),
                    fs::is_directory(path, missing) ? "it is a folder" : "it does not exist",
                    "give the path of a TOML file");
    std::string text = read_file(path, 1u << 20);
    if (const auto nul = text.find('\0'); nul != text.npos)
        throw not_text(path.string(), fmt::format("a zero byte at {}", nul));
    return text;
}

void flatten(const toml::table& table,
             const std::string& prefix,
             const std::string& file,
             Config& out) {
    for (const auto& [name, node] : table) {
        const std::string key = prefix + std::string(name.str());
        const std::string origin = place(file, node.source().begin);
        if (const auto* inner = node.as_table()) {
            flatten(*inner, key + ".", file, out);
        } else if (const auto flag = node.value_exact<bool>()) {
            out[key] = {*flag, origin};
        } else if (const auto whole = node.value_exact<std::int64_t>()) {
            out[key] = {*whole, origin};
        } else if (const auto real = node.value_exact<double>()) {
            out[key] = {*real, origin};
        } else if (const auto word = node.value_exact<std::string>()) {
            out[key] = {*word, origin};
        } else {
            throw Error("E112",
                        fmt::format("{}: '{}' is a list or a date", origin, key),
                        "settings are numbers, texts and true/false",
                        "give a single value");
        }
    }
}

}  // namespace

Config read_config(const fs::path& path) {
    const std::string text = read_text(path);
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
