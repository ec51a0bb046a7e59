// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/foreign.hpp"

#include "format/naming.hpp"
#include "row_layout.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
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

std::string no_layout(std::string_view word) {
    return fmt::format("'{}' is no layout: these are {}; a path with a colon needs one behind it",
                       word,
                       layout_words());
}

bool looks_like_hdf5(const fs::path& path) {
    constexpr std::array<std::string_view, 4> endings{".h5", ".hdf5", ".hdf", ".he5"};
    return std::ranges::find(endings, path.extension().native()) != endings.end();
}

// What systems and programs leave beside files: macOS's '._a.h5' is no HDF5, an editor's copy is.
bool is_hidden(const fs::path& path) {
    return path.filename().native().starts_with('.');
}

std::vector<fs::path> files_in(const fs::path& folder) {
    std::vector<fs::path> files;
    std::size_t hidden = 0;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
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

}  // namespace

FieldMapping parse_field_mapping(std::string_view text) {
    const std::size_t equals = text.find('=');
    if (equals == text.npos) throw bad_mapping(text, "it has no '='");
    FieldMapping mapping{.name = std::string(text.substr(0, equals)), .hdf5_path = {}};
    if (!is_field_name(mapping.name))
        throw bad_mapping(text, "a name has letters, digits, '_' and '-' only");
    std::string_view path = text.substr(equals + 1);
    // A layout has letters only, so that a colon in a path that is no layout stays in the path.
    const std::size_t colon = path.rfind(':');
    if (colon != path.npos && std::ranges::all_of(path.substr(colon + 1), [](unsigned char c) {
            return std::isalpha(c) != 0;
        })) {
        const std::string_view word = path.substr(colon + 1);
        const std::optional<RowLayout> layout = parse_layout(word);
        if (!layout) throw bad_mapping(text, no_layout(word));
        mapping.layout = *layout;
        path = path.substr(0, colon);
    }
    if (path.empty()) throw bad_mapping(text, "it names no data set");
    mapping.hdf5_path = path.starts_with('/') ? path : fmt::format("/{}", path);
    return mapping;
}

std::vector<FieldMapping> parse_field_mappings(std::string_view text) {
    std::vector<FieldMapping> mappings;
    if (text.empty()) return mappings;
    for (const std::string& mapping : split(text, ','))
        mappings.push_back(parse_field_mapping(mapping));
    return mappings;
}

std::vector<std::filesystem::path> foreign_files(const std::filesystem::path& where) {
    std::error_code missing;
    const fs::file_status status = fs::status(where, missing);
    if (fs::is_regular_file(status)) return {where};
    const std::vector<fs::path> files =
        fs::is_directory(status) ? files_in(where) : matches_of(where);
    check(!files.empty(), [&] {
        return Error("E201",
                     fmt::format("no HDF5 files at '{}'", where.string()),
                     fs::is_directory(status) ? "the folder has none that ends in .h5 or .hdf5"
                                              : "there is no such file, and nothing matches",
                     "name a file, a folder or a pattern such as 'data/part-*.h5'");
    });
    return files;
}

}  // namespace lockstep
