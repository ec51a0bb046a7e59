// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/foreign.hpp"

#include "format/manifest_fields.hpp"
#include "row_layout.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <glob.h>

namespace lockstep {
namespace {

Error bad_mapping(std::string_view text, const std::string& why) {
    return Error("E235",
                 fmt::format("'{}' does not describe a field", text),
                 why,
                 "write NAME=PATH or NAME=PATH:LAYOUT, such as images=/x/data:CHW");
}

// Returns the text after the last colon.
std::optional<std::string_view> last_word(std::string_view path) {
    const std::size_t colon = path.rfind(':');
    return colon == path.npos ? std::nullopt : std::optional(path.substr(colon + 1));
}

bool is_all_letters(std::string_view word) {
    return std::ranges::all_of(word, [](unsigned char c) { return std::isalpha(c) != 0; });
}

bool is_cf(std::string_view word) {
    return word == "cf" || word.starts_with("cf=");
}

CfValues cf_values(std::string_view text, std::string_view word) {
    if (word == "cf") return {};
    const std::string_view number = word.substr(3);
    if (number == "nan") return {std::numeric_limits<double>::quiet_NaN()};
    const std::optional<double> value = parse_real(number);
    if (!value)
        throw bad_mapping(text,
                          "'cf=' takes the number that stands for missing values, such as cf=0 or "
                          "cf=nan");
    return {*value};
}

bool looks_like_hdf5(const fs::path& path) {
    constexpr std::array<std::string_view, 4> endings{".h5", ".hdf5", ".hdf", ".he5"};
    return std::ranges::find(endings, path.extension().native()) != endings.end();
}

// Files that systems and programs leave beside others: macOS's '._a.h5' is no HDF5, an editor's
// copy is.
bool is_hidden(const fs::path& path) {
    return path.filename().native().starts_with('.');
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    std::size_t hidden = 0;
    std::error_code failed;
    const fs::directory_iterator entries(folder, failed);
    if (failed) throw system_error("read", folder, failed.value());
    for (const fs::directory_entry& entry : entries) {
        if (!looks_like_hdf5(entry.path()) || !entry.is_regular_file()) continue;
        if (is_hidden(entry.path()))
            ++hidden;
        else
            files.push_back(entry.path());
    }
    if (hidden > 0)
        once(Level::warn, "{} hidden HDF5 file(s) in '{}' are left out", hidden, folder.string());
    std::ranges::sort(files);
    return files;
}

std::vector<fs::path> matches_of(const fs::path& pattern) {
    glob_t found{};
    std::vector<fs::path> files;
    if (::glob(pattern.c_str(), GLOB_ERR, nullptr, &found) == 0)
        files.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    ::globfree(&found);
    std::ranges::sort(files);
    return files;
}

// "a.h5,b.h5": what several options or words become. A name may have a comma, too.
std::vector<fs::path> files_of_each(const fs::path& where) {
    std::vector<fs::path> files;
    for (const std::string& each : split(where.string(), ',')) {
        const std::vector<fs::path> found = foreign_files(each);
        files.insert(files.end(), found.begin(), found.end());
    }
    return files;
}

}  // namespace

FieldMapping parse_field_mapping(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos) throw bad_mapping(text, "it has no '='");
    FieldMapping mapping{.name = std::string(text.substr(0, equals)), .hdf5_path = {}};
    if (!is_field_name(mapping.name))
        throw bad_mapping(text, "a name has letters, digits, '_' and '-' only");
    std::string_view path = text.substr(equals + 1);
    if (const auto word = last_word(path); word && is_cf(*word)) {
        mapping.cf = cf_values(text, *word);
        path = path.substr(0, path.rfind(':'));
    }
    // A layout has letters only, so that a colon in a path that is no layout stays in the path.
    if (const auto word = last_word(path); word && is_all_letters(*word)) {
        const std::optional<RowLayout> layout = parse_layout(*word);
        if (!layout)
            throw bad_mapping(text,
                              fmt::format("'{}' is no layout: these are {}; a path with a colon "
                                          "needs one behind it",
                                          *word,
                                          layout_words()));
        mapping.layout = *layout;
        path = path.substr(0, path.rfind(':'));
    }
    if (const auto word = last_word(path); word && is_cf(*word))
        throw bad_mapping(text, "':cf' comes last, behind the layout, and once");
    if (const std::size_t colon = path.find(":/"); colon != path.npos && colon > 0) {
        mapping.file = path.substr(0, colon);
        path.remove_prefix(colon + 1);
    }
    if (path.empty()) throw bad_mapping(text, "it names no data set");
    if (mapping.cf && may_be_label(mapping))
        throw bad_mapping(text, "class numbers stand for nothing else: ':cf' is for other fields");
    mapping.hdf5_path = path.starts_with('/') ? path : fmt::format("/{}", path);
    return mapping;
}

std::string mapping_text(const FieldMapping& mapping) {
    const std::string_view layout = layout_word(mapping.layout);
    std::string cf = mapping.cf ? ":cf" : "";
    if (mapping.cf && mapping.cf->instead) cf += fmt::format("={}", *mapping.cf->instead);
    return fmt::format("{}={}{}{}{}{}{}",
                       mapping.name,
                       mapping.file.string(),
                       mapping.file.empty() ? "" : ":",
                       mapping.hdf5_path,
                       layout.empty() ? "" : ":",
                       layout,
                       cf);
}

std::vector<FieldMapping> parse_field_mappings(std::string_view text, Links links) {
    std::vector<FieldMapping> mappings;
    if (text.empty()) return mappings;
    for (const std::string& mapping : split(text, ','))
        mappings.push_back(parse_field_mapping(mapping));
    for (FieldMapping& mapping : mappings) mapping.links = links;
    return mappings;
}

std::vector<fs::path> foreign_files(const fs::path& where) {
    std::error_code missing;
    const fs::file_status status = fs::status(where, missing);
    if (fs::is_regular_file(status)) return {where};
    // A folder above it that may not be entered; a pattern may be too long for a name.
    if (missing.value() == EACCES) throw system_error("open", where, EACCES);
    if (!fs::exists(status) && where.native().find(',') != std::string::npos)
        return files_of_each(where);
    const std::vector<fs::path> files =
        fs::is_directory(status) ? files_in(where) : matches_of(where);
    check(!files.empty(),
          "E201",
          fmt::format("no HDF5 files at '{}'", where.string()),
          fs::is_directory(status) ? "the folder has none that ends in .h5 or .hdf5"
                                   : "there is no such file, and nothing matches",
          "name a file, a folder or a pattern such as 'data/part-*.h5'");
    return files;
}

Option data_option(const std::string& name, fs::path& target, const std::string& help) {
    Option option = path_option(name + " DIR|FILE", target, help);
    option.kind = OptionKind::list;
    return option;
}

Option field_option(const std::string& name, std::string& target, const std::string& help) {
    Option option = list_option(name + " NAME=[FILE:]PATH[:LAYOUT][:cf]", target, help);
    option.assign = [assign = option.assign](const GivenValue& given) {
        parse_field_mappings(given.text);
        assign(given);
    };
    return option;
}

Option links_option(bool& target) {
    return flag_option("follow-links",
                       target,
                       "follow links of --field to data sets in other files; use it only for files "
                       "that you trust");
}

Links links_of(bool follows_links) {
    return follows_links ? Links::followed : Links::refused;
}

fs::path data_of_words(const std::vector<std::string>& words) {
    return fmt::format("{}", fmt::join(words, ","));
}

}  // namespace lockstep
