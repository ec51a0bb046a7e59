// SPDX-License-Identifier: Apache-2.0

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/foreign.hpp"

#include "contents.hpp"
#include "format/labels.hpp"
#include "row_layout.hpp"
#include "stored_blocks.hpp"

#include <algorithm>
#include <array>
#include <system_error>

#include <fmt/format.h>
#include <hdf5.h>

namespace lockstep {
namespace {

// Returns Python's part of a command that writes each file anew into a folder: NumPy's `x` is the
// first data set, `made` are data sets by name that replace it; the others stay unchanged.
constexpr std::string_view writing_anew =
    "import io,os,sys,h5py,numpy as n; {}o,f,d,*r=sys.argv[1:]; i=h5py.File(f,\"r\"); x={}; "
    "os.makedirs(o,exist_ok=True); "
    "h=h5py.File(o+\"/\"+os.path.splitext(os.path.basename(f))[0]+\".h5\",\"x\"); "
    "h.update({}); h.update({{k:i[k][()] for k in r}})";

// Complex numbers become two, a compound's members data sets of their own.
constexpr std::string_view taking_apart =
    "p=lambda k,x: [q for m in x.dtype.names for q in p(k+\"/\"+m,x[m])] if x.dtype.names "
    "else [(k,n.stack([x.real,x.imag],1))] if x.dtype.kind==\"c\" "
    "else [(k,x.astype(\"f8\") if x.dtype.str[1:] in (\"u8\",\"f16\") else x)] "
    "if x.dtype.kind in \"biuf\" else []; ";

constexpr std::size_t few_files = 4;

// The files as words of a shell: a pattern for all of a folder, where it names just these.
std::string file_words(const std::vector<fs::path>& files) {
    const fs::path folder = files[0].parent_path(), ending = files[0].extension();
    if (files.size() > few_files) {
        std::error_code failed;
        std::size_t alike = 0;
        for (const auto& entry : fs::directory_iterator(folder, failed))
            if (entry.path().extension() == ending &&
                !entry.path().filename().native().starts_with('.'))
                ++alike;
        const bool is_all = std::ranges::all_of(files, [&](const fs::path& file) {
            return file.parent_path() == folder && file.extension() == ending;
        });
        if (is_all && alike == files.size())
            return shell_word(folder.string()) + "/*" + shell_word(ending.string());
    }
    std::string list;
    for (const fs::path& file : files)
        list += (list.empty() ? "" : " ") + shell_word(file.string());
    return list;
}

// Returns a command for each file of `field`, whose data set comes first.
std::string for_each_file(const AskedFiles& asked, std::size_t field, const std::string& python) {
    const fs::path& own = asked.fields[field].file;
    const std::vector<fs::path> files = own.empty() ? asked.files : foreign_files(own);
    const bool is_one = files.size() == 1;
    std::string places = shell_word(asked.fields[field].hdf5_path);
    for (std::size_t f = 0; f < asked.fields.size(); ++f)
        if (f != field && asked.fields[f].file == own)
            places += " " + shell_word(asked.fields[f].hdf5_path);
    const std::string command = fmt::format(
        "python3 -c '{}' NAME {} {}", python, is_one ? file_words(files) : "\"$f\"", places);
    if (is_one) return command;
    return fmt::format("for f in {}; do {}; done", file_words(files), command);
}

std::string convert_command(const AskedFiles& asked, std::size_t field) {
    return write_anew_command(asked, field, "p(d,x)", "i[d][()]", taking_apart);
}

// Returns the possible layouts of samples of these dimensions.
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

bool is_foreign(const DatasetIndex& data) {
    return data.manifest().kind == ManifestKind::foreign && !data.fields()[0].source.empty();
}

// As somebody gave them, but for files that links lead to.
AskedFiles asked_for(const DatasetIndex& data) {
    AskedFiles asked;
    for (const Shard& shard : data.shards())
        if (shard.samples > 0) asked.files.push_back(data.path() / shard.name);
    for (const Field& field : data.fields()) {
        asked.fields.push_back(parse_field_mapping(field.name + "=" + field.source));
        fs::path& own = asked.fields.back().file;
        if (!own.empty()) own = data.path() / own;
    }
    return asked;
}

}  // namespace

std::string pack_command(const AskedFiles& asked, Links links) {
    std::string command = "lockstep data pack";
    if (asked.files.size() > few_files)
        command += " --hdf5 " + file_words(asked.files);
    else
        for (const auto& file : asked.files) command += " --hdf5 " + shell_word(file.string());
    for (const FieldMapping& field : asked.fields)
        command += " --field " + shell_word(mapping_text(field));
    if (asked.layout != ImageLayout::unstated)
        command += asked.layout == ImageLayout::chw ? " --layout chw" : " --layout hwc";
    if (links == Links::followed || asked.links == Links::followed) command += " --follow-links";
    if (asked.is_sample_a_file) command += " --sample-a-file";
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
                       .one_each = asked.is_sample_a_file
                                       ? ""
                                       : "make shards of them: " + sample_a_file_command(asked),
                       .otherwise = is_for_all ? "leave --layout away"
                                               : other_layouts(mapping, shape.size())});
    });
}

std::string rewrite_command(const AskedFiles& asked,
                            std::size_t field,
                            const std::string& numbers) {
    return write_anew_command(asked, field, "{d:" + numbers + "}");
}

std::string write_anew_command(const AskedFiles& asked,
                               std::size_t field,
                               const std::string& data_sets,
                               std::string_view taken,
                               std::string_view before) {
    return for_each_file(asked, field, fmt::format(writing_anew, before, taken, data_sets));
}

std::string sample_a_file_command(AskedFiles asked) {
    asked.is_sample_a_file = true;
    return pack_command(asked);
}

std::string rewrite_npy_command(const fs::path& file,
                                const std::string& numbers,
                                const std::string& reading) {
    const std::string place = file.string();
    const std::size_t colon = place.rfind(':');
    std::error_code failed;
    const bool is_of_archive = colon != place.npos && !fs::exists(file, failed);
    return fmt::format(
        "python3 -c 'import sys,numpy as n; x=n.load(sys.argv[1]{}){}; n.save(sys.argv[2],{})' {} "
        "NAME.npy{}",
        reading,
        is_of_archive ? "[sys.argv[3]]" : "",
        numbers,
        shell_word(is_of_archive ? place.substr(0, colon) : place),
        is_of_archive ? " " + shell_word(place.substr(colon + 1)) : "");
}

Error other_rows(const fs::path& file,
                 const AskedFiles& asked,
                 std::size_t before,
                 const std::vector<std::uint64_t>& first,
                 std::size_t field,
                 const std::vector<std::uint64_t>& size) {
    const std::string& name = asked.fields[field].hdf5_path;
    const std::string& first_name = asked.fields[before].hdf5_path;
    const bool is_last = size.size() > 1 && size.back() == first[0];
    const bool is_across = size.size() == 2 && size[0] == 1;  // labels of [1, N] are taken as N
    const bool is_last_of_first = first.size() > 1 && first.back() == size[is_across ? 1 : 0];
    const std::string fix =
        is_last || is_last_of_first
            ? fmt::format(
                  "let h5py put the samples of '{}' first, in a folder NAME that you give "
                  "instead: {}",
                  is_last ? name : first_name,
                  rewrite_command(asked, is_last ? field : before, "n.moveaxis(x,-1,0)"))
            : "name data sets with one row for each sample; these are there: lockstep data "
              "inspect " +
                  shell_word(file.string());
    return {"E209",
            fmt::format("'{}' has {} rows of '{}' and {} of '{}'",
                        file.string(),
                        grouped(first[0]),
                        first_name,
                        grouped(size[0]),
                        name),
            fmt::format("the first dimension counts samples: '{}' is [{}], '{}' is [{}]{}",
                        first_name,
                        fmt::join(first, ", "),
                        name,
                        fmt::join(size, ", "),
                        is_last && size[0] == 1 ? ", as MATLAB writes a column" : ""),
            fix};
}

Error other_samples(const RowsRequest& first, const RowsRequest& other) {
    const auto describe = [](const RowsRequest& each) {
        return fmt::format(
            "'{}' of '{}' has {} rows", each.dataset, each.path.string(), grouped(each.rows));
    };
    return {"E209",
            fmt::format("{}, and {}", describe(first), describe(other)),
            "rows of several files are joined by their number, and each is one sample",
            "give files of the same samples, in the same order; what there is: lockstep data "
            "inspect " +
                shell_word(other.path.string())};
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
            convert_command(asked, field));
    if (obstacle == Obstacle::elements && facts.has_numbers)
        return "let h5py write its numbers anew, into a folder NAME that 'lockstep data inspect "
               "NAME' shows: " +
               convert_command(asked, field);
    if (obstacle == Obstacle::elements && facts.has_bytes) {
        AskedFiles images = asked;
        images.fields[field].name = "images";
        return "if these are encoded images, pack them as 'images', with --field for labels or "
               "masks beside it: " +
               pack_command(images);
    }
    if (obstacle == Obstacle::samples && facts.number && facts.size.empty() &&
        asked.files.size() > 1)
        return "if each file holds one sample, make shards of them: " +
               sample_a_file_command(asked);
    const std::string suggested = suggested_fields(candidates_of(asked.files[0]));
    return suggested.empty() ? "give another file: this one has no data set that can be a field"
                             : "name another data set of it, such as " + suggested;
}

std::string way_to_pack(const fs::path& file,
                        AskedFiles asked,
                        const AskedFiles* whole,
                        const std::string& why) {
    for (FieldMapping& field : asked.fields) field.file.clear();  // these files are its own
    try {
        check_packs_hdf5(file, asked);
    } catch (const Error& error) {
        if (error.why() == why) return error.fix();
        return fmt::format("it cannot be packed either ({}); {}",
                           error.why().empty() ? error.what() : error.why(),
                           error.fix());
    }
    return "make shards of it: " + pack_command(whole ? *whole : asked);
}

std::string way_past_filter(std::uint64_t kind, const AskedFiles& asked) {
    constexpr std::uint64_t lzo = 305;
    // Those of the package hdf5plugin, by their registered numbers.
    constexpr std::array<std::uint64_t, 11> packaged{
        307, 32001, 32004, 32008, 32013, 32015, 32017, 32018, 32024, 32026, 32028};
    if (kind == lzo && asked.files.size() == 1)
        return fmt::format(
            "let PyTables store it anew: ptrepack --complevel 1 --complib zlib {} NAME.h5",
            shell_word(asked.files[0].string()));
    if (std::ranges::count(packaged, kind) > 0)
        return fmt::format(
            "after 'pip install hdf5plugin': HDF5_PLUGIN_PATH=\"$(python3 -c 'import hdf5plugin; "
            "print(hdf5plugin.PLUGIN_PATH)')\" {}",
            pack_command(asked));
    return fmt::format("set HDF5_PLUGIN_PATH to a folder with a plug-in of libhdf5 for filter {}",
                       filter_name(kind));
}

std::string way_to_rewrite(const DatasetIndex& data,
                           std::size_t field,
                           const std::string& numbers) {
    if (is_foreign(data))
        return "let h5py write it so, in a folder NAME that you give instead: " +
               rewrite_command(asked_for(data), field, numbers);
    return fmt::format("pack {} of NumPy's array x in place of x, where n is numpy", numbers);
}

std::string way_to_rename(const DatasetIndex& data,
                          std::size_t field,
                          const std::string& name,
                          const std::string& layout) {
    const Field& named = data.fields()[field];
    if (!is_foreign(data))
        return fmt::format("pack the data again, with '{}' as the name of '{}'", name, named.name);
    return "--field " + shell_word(fmt::format("{}={}{}", name, named.source, layout));
}

std::string row_text(const DatasetIndex& data, const Field& field, std::uint64_t sample) {
    const auto& shards = data.shards();
    const auto after = std::ranges::upper_bound(shards, sample, {}, &Shard::first_sample);
    const Shard* shard = &*std::prev(after);
    std::uint64_t first = shard->first_sample;
    // A field with files of its own has its rows there.
    if (const auto colon = field.source.find(":/"); colon != field.source.npos && colon > 0) {
        const auto& blocks = data.stored_blocks(data.field_position(field.name));
        const auto block =
            std::prev(std::ranges::upper_bound(blocks, sample, {}, &StoredBlock::first_row));
        if (block->shard != kept_in_index) {
            shard = &shards[block->shard];
            first = std::ranges::find(blocks, block->shard, &StoredBlock::shard)->first_row;
        }
    }
    const bool is_shuffled = data.manifest().row_order.starts_with("shuffled");
    return fmt::format("row {} of '{}' in '{}'{}",
                       grouped(sample - first),
                       field.source.empty() ? "/data/" + field.name : field.source,
                       (data.path() / shard->name).string(),
                       is_shuffled ? ", which packing shuffled ('lockstep data pack --keep-order' "
                                     "keeps the source's rows)"
                                   : "");
}

}  // namespace lockstep
