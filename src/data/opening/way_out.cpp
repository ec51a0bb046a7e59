// SPDX-License-Identifier: Apache-2.0
#include "way_out.hpp"

#include "lockstep/core/shell_word.hpp"

#include "contents.hpp"
#include "format/labels.hpp"
#include "hdf5/stored_blocks.hpp"
#include "row_layout.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <hdf5.h>

namespace lockstep {
namespace {

// Writes the first data set's numbers to the folder, complex ones as two, a compound's members as
// data sets of their own, and the others as they are.
constexpr std::string_view rewriting =
    "import os,sys,h5py,numpy as n; o,f,d,*r=sys.argv[1:]; "
    "p=lambda k,x: [q for m in x.dtype.names for q in p(k+\"/\"+m,x[m])] if x.dtype.names "
    "else [(k,n.stack([x.real,x.imag],1))] if x.dtype.kind==\"c\" "
    "else [(k,x.astype(\"f8\") if x.dtype.str[1:] in (\"u8\",\"f16\") else x)] "
    "if x.dtype.kind in \"biuf\" else []; "
    "os.makedirs(o,exist_ok=True); i=h5py.File(f); h=h5py.File(o+\"/\"+os.path.basename(f),\"w\"); "
    "h.update(p(d,i[d][()])); h.update({k:i[k][()] for k in r})";

std::string rewrite_command(const AskedFiles& asked, std::size_t field) {
    const bool is_one = asked.files.size() == 1;
    std::string places = shell_word(asked.fields[field].hdf5_path);
    for (std::size_t f = 0; f < asked.fields.size(); ++f)
        if (f != field) places += " " + shell_word(asked.fields[f].hdf5_path);
    std::string command = fmt::format("python3 -c '{}' NAME {} {}",
                                      rewriting,
                                      is_one ? shell_word(asked.files[0].string()) : "\"$f\"",
                                      places);
    if (is_one) return command;
    std::string files;
    for (const auto& file : asked.files) files += " " + shell_word(file.string());
    return fmt::format("for f in{}; do {}; done", files, command);
}

// As a shell takes them; a pattern for all of a folder, which may be many.
std::string words_of(const std::vector<fs::path>& files) {
    const fs::path folder = files[0].parent_path(), kind = files[0].extension();
    const auto is_like = [&](const fs::path& path) {
        return path.parent_path() == folder && path.extension() == kind;
    };
    std::error_code failed;
    const auto there = fs::directory_iterator(folder.empty() ? "." : folder, failed);
    const bool is_all =
        files.size() > 1 && !failed && std::ranges::all_of(files, is_like) &&
        static_cast<std::size_t>(std::count_if(begin(there), end(there), [&](const auto& entry) {
            return entry.path().extension() == kind;
        })) == files.size();
    if (is_all) return shell_word((folder / "").string()) + "*" + shell_word(kind.string());
    std::string text;
    for (const fs::path& file : files)
        text += (text.empty() ? "" : " ") + shell_word(file.string());
    return text;
}

// Writes one file, whose data sets have a row for each of the files given.
std::string stack_command(const AskedFiles& asked) {
    std::string sources;
    for (const FieldMapping& field : asked.fields)
        sources += (sources.empty() ? "" : ",") + field.hdf5_path;
    return fmt::format(
        "python3 -c 'import sys,h5py,numpy as n; o,k,*r=sys.argv[1:]; h5py.File(o,\"w\").update("
        "{{q: n.stack([h5py.File(f)[q][()] for f in r]) for q in k.split(\",\")}})' NAME.h5 {} {}",
        shell_word(sources),
        words_of(asked.files));
}

// What may be written of samples of so many dimensions.
std::string other_layouts(FieldMapping field, std::size_t dimensions) {
    std::vector<RowLayout> layouts{RowLayout::unstated};
    if (dimensions == 3) layouts = {RowLayout::chw, RowLayout::hwc};
    if (dimensions == 2 && !is_label_name(field.name)) layouts = {RowLayout::hw};
    if (dimensions < 2 && field.name == "images") field.name = "features";
    std::string options;
    for (const RowLayout layout : layouts) {
        field.layout = layout;
        options +=
            (options.empty() ? "write --field " : " or --field ") + shell_word(mapping_text(field));
    }
    return options;
}

// What else the file has.
std::string other_fields(const AskedFiles& asked) {
    const std::string suggested = suggested_fields(candidates_of(asked.files[0]));
    return suggested.empty() ? "write it anew as numbers: the file has no data set that can be "
                               "a field"
                             : "name another data set of it, such as " + suggested;
}

// Those of the package hdf5plugin, by their registered numbers.
bool is_in_hdf5plugin(std::uint64_t kind) {
    constexpr std::array<std::uint64_t, 11> known{
        307, 32001, 32004, 32008, 32013, 32015, 32017, 32018, 32024, 32026, 32028};
    return std::ranges::find(known, kind) != known.end();
}

}  // namespace

std::string pack_command(const AskedFiles& asked, Links links) {
    std::string command = "lockstep data pack";
    for (const auto& file : asked.files) command += " --hdf5 " + shell_word(file.string());
    for (const FieldMapping& field : asked.fields)
        command += " --field " + shell_word(mapping_text(field));
    if (asked.layout != ImageLayout::unstated)
        command += asked.layout == ImageLayout::chw ? " --layout chw" : " --layout hwc";
    if (links == Links::followed || asked.links == Links::followed) command += " --follow-links";
    return command + " --out NAME";
}

void check_dimensions(const AskedFiles& asked,
                      std::size_t field,
                      const fs::path& file,
                      std::uint64_t count,
                      const std::vector<std::int64_t>& shape) {
    const FieldMapping& mapping = asked.fields[field];
    const bool is_image = mapping.name == "images";
    const bool is_for_all = mapping.layout == RowLayout::unstated && is_image &&
                            asked.layout != ImageLayout::unstated && shape.size() == 2;
    const RowLayout layout = is_for_all ? row_layout(asked.layout) : mapping.layout;
    check(fits(layout, shape.size()), [&] {
        return misfit(layout,
                      {.field = mapping.name,
                       .place = fmt::format("'{}' in '{}'", mapping.hdf5_path, file.string()),
                       .count = count,
                       .shape = shape,
                       .stack = stack_command(asked),
                       .otherwise = is_for_all ? "leave --layout away"
                                               : other_layouts(mapping, shape.size())});
    });
}

std::string way_past(Obstacle obstacle,
                     const AskedFiles& asked,
                     std::size_t field,
                     const DatasetFacts& facts) {
    if (obstacle == Obstacle::elsewhere)
        return fmt::format(
            "if you trust what the file names, {}make shards of it: {}",
            facts.layout == StorageLayout::linked
                ? "add --follow-links, or "
                : "add --follow-links, which streams whole data sets that are put one "
                  "after the other, or ",
            pack_command(asked, Links::followed));
    if (obstacle == Obstacle::library)
        return fmt::format(
            "copy it again from its source; if 'pip install h5py' brings an h5py that reads it, it "
            "is newer than this program's HDF5 {}.{}.{}: build Lockstep with such an HDF5, or let "
            "that h5py write it anew, into a folder NAME: {}",
            H5_VERS_MAJOR,
            H5_VERS_MINOR,
            H5_VERS_RELEASE,
            rewrite_command(asked, field));
    if (obstacle == Obstacle::elements && facts.has_numbers)
        return "let h5py write its numbers anew, into a folder NAME that 'lockstep data look NAME' "
               "shows: " +
               rewrite_command(asked, field);
    return other_fields(asked);
}

std::string way_past_filter(std::uint64_t kind, const AskedFiles& asked) {
    constexpr std::uint64_t lzo = 305;
    if (kind == lzo && asked.files.size() == 1)
        return fmt::format(
            "let PyTables store it anew: ptrepack --complevel 1 --complib zlib {} NAME.h5",
            shell_word(asked.files[0].string()));
    if (is_in_hdf5plugin(kind))
        return fmt::format(
            "after 'pip install hdf5plugin': HDF5_PLUGIN_PATH=\"$(python3 -c 'import hdf5plugin; "
            "print(hdf5plugin.PLUGIN_PATH)')\" {}",
            pack_command(asked));
    return fmt::format("set HDF5_PLUGIN_PATH to a folder with a plug-in of libhdf5 for filter {}",
                       filter_name(kind));
}

}  // namespace lockstep
