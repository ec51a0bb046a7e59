// SPDX-License-Identifier: Apache-2.0
#include "contents.hpp"

#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"

#include "row_layout.hpp"
#include "sandbox.hpp"
#include "shard_probe.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_lines = 20;

/// A data set in a file.
struct DatasetPlace {
    fs::path file;
    std::string name;
};

constexpr std::string_view joining =
    "import sys,h5py; o,*a=sys.argv[1:]; h=h5py.File(o,\"x\"); "
    "[h5py.File(f,\"r\").copy(d,h,d) for f,d in zip(a[::2],a[1::2])]";

// Returns a command that copies data sets of several files into a file NAME.h5.
std::string join_command(const std::vector<DatasetPlace>& places) {
    std::string list;
    for (const DatasetPlace& place : places)
        list += " " + shell_word(place.file.string()) + " " + shell_word(place.name);
    return fmt::format("python3 -c '{}' NAME.h5{}", joining, list);
}

std::string field_option(const FieldMapping& mapping) {
    return "--field " + shell_word(mapping_text(mapping));
}

std::string form_text(const DatasetFacts& facts) {
    if (facts.layout == StorageLayout::missing) return "a data set";  // and no more is known
    return fmt::format("{} [{}]", facts.type_text, fmt::join(facts.size, ", "));
}

// By field, a file that has its data set; nothing where some field's is nowhere. Only some files
// are looked at: those of one kind lie side by side.
std::optional<std::vector<DatasetPlace>> places_of(const AskedFiles& asked) {
    constexpr std::size_t most_files = 64;
    FileRequest request{.links = asked.links};
    for (const FieldMapping& field : asked.fields) {
        if (!field.file.empty()) return {};
        request.datasets.push_back(field.hdf5_path);
    }
    std::vector<DatasetPlace> places(asked.fields.size());
    Sandbox sandbox;
    const std::size_t step = (asked.files.size() - 1) / most_files + 1;
    for (std::size_t number = 0; number < asked.files.size(); number += step) {
        request.path = asked.files[number];
        if (!is_hdf5(request.path)) continue;
        const FileFacts facts = sandbox.look(request);
        for (std::size_t f = 0; f < places.size(); ++f)
            if (places[f].name.empty() && !is_absent(facts.datasets[f]))
                places[f] = {request.path, asked.fields[f].hdf5_path};
    }
    const bool is_complete =
        std::ranges::none_of(places, [](const DatasetPlace& place) { return place.name.empty(); });
    return is_complete ? std::optional(std::move(places)) : std::nullopt;
}

// Options of all fields, with the file of each that does not lie in that of the first.
std::string with_files(const AskedFiles& asked, const std::vector<DatasetPlace>& places) {
    std::string options;
    for (std::size_t f = 0; f < places.size(); ++f) {
        FieldMapping field = asked.fields[f];
        if (places[f].file != places[0].file) field.file = places[f].file;
        options += " " + field_option(field);
    }
    return options.substr(1);
}

// E207 where another of the files has what this one lacks.
std::optional<Error> lies_in_another_file(const std::string& what,
                                          const AskedFiles& asked,
                                          std::size_t field) {
    if (asked.files.size() < 2) return {};
    const auto places = places_of(asked);
    if (!places) return {};
    std::set<fs::path> files;
    for (const DatasetPlace& place : *places) files.insert(place.file);
    if (files.size() < 2) return {};
    return Error(
        "E207",
        what,
        fmt::format("'{}' has it; files of --data have all fields, but for those that name files "
                    "of their own",
                    (*places)[field].file.string()),
        files.size() == asked.files.size()
            ? fmt::format("give {} alone as data, and other files with their fields: {}",
                          shell_word((*places)[0].file.string()),
                          with_files(asked, *places))
            : fmt::format("give the files of one field as --data and, for another, their pattern "
                          "in --field NAME='PATTERN:/PATH'; or join each group of files that "
                          "belong together, such as these, in a file NAME.h5 with h5py: {}",
                          join_command(*places)));
}

// Members of one size can be stacked; lists of bytes of different lengths are encoded images.
std::string way_past_group(const AskedFiles& asked,
                           std::size_t field,
                           const std::vector<Candidate>& all) {
    // In the order of the numbers in their names.
    constexpr std::string_view members =
        "i[d]; x=[x[k] for k in sorted(x,key=lambda k:(len(k),k))]";
    const std::string begin = asked.fields[field].hdf5_path + "/";
    const DatasetFacts* first = nullptr;
    bool is_alike = true, are_bytes = true;
    for (const Candidate& each : all) {
        if (!each.name.starts_with(begin)) continue;
        if (!first) first = &each.facts;
        is_alike = is_alike && each.facts.size == first->size && each.facts.number &&
                   each.name.find('/', begin.size()) == each.name.npos;
        are_bytes = are_bytes && each.facts.size.size() == 1 && each.facts.number &&
                    each.facts.number->bytes == 1;
    }
    if (is_alike)
        return "if each is a sample, let h5py stack them, in the order of their names, in a folder "
               "NAME: " +
               write_anew_command(asked, field, "{d:n.stack([n.asarray(v) for v in x])}", members);
    if (are_bytes)
        return "if these are encoded images, let h5py and Pillow ('pip install pillow') write "
               "their pixels, all resized to 224 x 224, into a folder NAME: " +
               write_anew_command(
                   asked,
                   field,
                   "{d:n.stack([n.asarray(Image.open(io.BytesIO(n.asarray(v).tobytes()))"
                   ".convert(\"RGB\").resize((224,224))) for v in x])}",
                   members,
                   "from PIL import Image; ");
    return "name one of these data sets";
}

// Returns the data set that a misspelt name may mean: not another field's, and one that can be a
// field.
const Candidate* nearest_to(const FieldMapping& wanted,
                            const AskedFiles& asked,
                            const std::vector<Candidate>& all) {
    std::vector<std::string> names;
    for (const Candidate& each : all)
        if (each.obstacle.empty() &&
            std::ranges::find(asked.fields, each.name, &FieldMapping::hdf5_path) ==
                asked.fields.end())
            names.push_back(each.name);
    const std::string nearest = nearest_name(wanted.hdf5_path, names);
    const auto found = std::ranges::find(all, nearest, &Candidate::name);
    return nearest.empty() || found == all.end() ? nullptr : &*found;
}

// `wanted` of another data set, with a layout where images need one.
FieldMapping mapping_of(const Candidate& found, FieldMapping wanted) {
    wanted.hdf5_path = found.name;
    if (wanted.name == "images" && wanted.layout == RowLayout::unstated && may_be_input(found))
        wanted.layout = input_mapping(found).layout;
    return wanted;
}

// One data set of several packed ones, as far as its classes are known to be the same.
std::string way_to_join(const std::vector<std::string>& places) {
    const std::string source = "pack them together from their sources";
    AskedFiles asked;
    std::vector<std::string> names;
    for (const std::string& place : places) {
        if (!is_packed(place)) return source;
        const Manifest manifest =
            parse_manifest(read_manifest_text(place), place, ManifestKind::packed);
        std::vector<FieldMapping> fields;
        std::vector<std::string> classes;
        for (const Field& field : manifest.fields) {
            const auto layout = parse_layout(field.layout);
            fields.push_back(
                {field.name, "/data/" + field.name, layout.value_or(RowLayout::unstated)});
            classes.insert(classes.end(), field.class_names.begin(), field.class_names.end());
        }
        const bool is_alike = asked.files.empty() || (fields == asked.fields && classes == names);
        if (!is_alike) return source;
        asked.files.emplace_back(place);
        asked.fields = fields;
        names = classes;
    }
    return "make one of them: " + pack_command(asked);
}

// Several --data are one data set where they are files.
void check_is_one(const fs::path& where) {
    const std::vector<std::string> places = split(where.string(), ',');
    const bool has_packed = places.size() > 1 && std::ranges::any_of(places, is_packed);
    check(!has_packed || fs::exists(status_of(where)), [&] {
        return Error(
            "E216",
            fmt::format("'{}' names {} places, but a packed data set is one",
                        where.string(),
                        places.size()),
            "'lockstep train', eval and predict take several packed data sets, this command one",
            way_to_join(places));
    });
}

Error no_packed_dataset(const fs::path& where, const ForeignPlace& found, const std::string& fix) {
    const fs::path file = fs::absolute(found.files[0]), folder = file.parent_path();
    const std::string shard = fmt::format("\"{}\"", file.filename().string());
    if (is_packed(folder) && read_manifest_text(folder).find(shard) != shard.npos)
        return Error("E216",
                     fmt::format("'{}' is no data set", where.string()),
                     "it is a part of the packed data set in its folder",
                     fmt::format("give the folder: {}", folder.string()));
    return Error("E216",
                 fmt::format("'{}' is no packed data set", where.string()),
                 fmt::format("'{}' is an HDF5 file that others wrote; {}",
                             found.files[0].string(),
                             list_text(found.all)),
                 fix.empty()
                     ? "give another file: no data set of this one can be the input of a model"
                     : fix);
}

}  // namespace

std::vector<Candidate> candidates_of(const fs::path& file, Links links) {
    std::vector<Candidate> all;
    for (const std::string& name : Sandbox().list(file).datasets) {
        all.push_back(candidate_of(
            file,
            {.name = "field", .hdf5_path = name, .layout = RowLayout::value, .links = links}));
        if (all.back().facts.is_column_of_texts()) all.back().obstacle.clear();
    }
    return all;
}

std::string list_text(const std::vector<Candidate>& all) {
    if (all.empty()) return "it has no data sets";
    std::string text = "it has";
    for (const Candidate& each : std::span(all).first(std::min(all.size(), most_lines)))
        text += fmt::format("\n    {}: {}{}{}",
                            each.name,
                            form_text(each.facts),
                            each.obstacle.empty() ? "" : ", which cannot be streamed: ",
                            each.obstacle);
    if (all.size() > most_lines) text += fmt::format("\n    and {} more", all.size() - most_lines);
    return text;
}

std::string suggested_fields(const std::vector<Candidate>& all) {
    std::string options;
    for (const FieldMapping& mapping : suggested_mappings(all))
        options += (options.empty() ? "" : " ") + field_option(mapping);
    return options;
}

Error no_such_dataset(const fs::path& file, const AskedFiles& asked, std::size_t field) {
    const FieldMapping& wanted = asked.fields[field];
    const std::string what =
        fmt::format("'{}' has no data set '{}'", file.string(), wanted.hdf5_path);
    if (const std::optional<Error> apart = lies_in_another_file(what, asked, field)) return *apart;
    const std::vector<Candidate> all = candidates_of(file);
    const auto is_member = [&](const Candidate& each) {
        return each.name.starts_with(wanted.hdf5_path + "/");
    };
    if (std::ranges::count_if(all, is_member) > 1)
        return {"E207",
                what,
                fmt::format("'{}' is a group of data sets, and a field is one data set with a row "
                            "for each sample; {}",
                            wanted.hdf5_path,
                            list_text(all)),
                way_past_group(asked, field, all)};
    const Candidate* meant = nearest_to(wanted, asked, all);
    const std::string suggested = suggested_fields(all);
    return {"E207",
            what,
            fmt::format("it was given as field '{}'; {}", wanted.name, list_text(all)),
            meant               ? fmt::format("did you mean '{}'? Then give {}",
                                meant->name,
                                field_option(mapping_of(*meant, wanted)))
            : suggested.empty() ? "give another file: this one has no data set that can be a field"
                                : "name what is there, such as " + suggested};
}

bool is_absent(const DatasetFacts& facts) {
    return facts.layout == StorageLayout::missing && facts.chunks.fault.empty();
}

bool is_packed(const fs::path& where) {
    return fs::exists(status_of(where / manifest_name));
}

ForeignPlace foreign_place(const fs::path& where, Links links) {
    if (is_packed(where)) return {};
    check_is_one(where);
    std::vector<fs::path> files;
    try {
        files = foreign_files(where);
    } catch (const Error&) {
        return {};  // what to say then is not said here
    }
    if (!is_hdf5(files[0])) {
        const FileGuess kind = guess_of_file(files[0], ".h5");
        throw Error(
            "E216", fmt::format("'{}' is no data set", files[0].string()), kind.meaning, kind.way);
    }
    check_is_whole_hdf5(files[0], 0);
    std::vector<Candidate> all = candidates_of(files[0], links);
    return {std::move(files), std::move(all)};
}

void check_needs_no_fields(const fs::path& where, const std::string& option) {
    const ForeignPlace found = foreign_place(where);
    if (found.files.empty()) return;
    std::string suggested = suggested_fields(found.all);
    for (std::size_t at = 0; (at = suggested.find("--field", at)) != suggested.npos;
         at += option.size())
        suggested.replace(at, std::string_view("--field").size(), option);
    throw no_packed_dataset(
        where, found, suggested.empty() ? "" : "say which of it are fields, such as " + suggested);
}

void check_is_packed(const fs::path& where) {
    const ForeignPlace found = foreign_place(where);
    if (found.files.empty()) return;
    const std::vector<FieldMapping> fields = suggested_mappings(found.all);
    throw no_packed_dataset(
        where,
        found,
        fields.empty() ? "" : "pack it first, such as " + pack_command({found.files, fields}));
}

}  // namespace lockstep
