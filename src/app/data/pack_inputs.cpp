// SPDX-License-Identifier: Apache-2.0
#include "data/pack_inputs.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/data/foreign.hpp"
#include "lockstep/data/manifest.hpp"
#include "lockstep/run/run_directory.hpp"

#include "option_groups.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// An option that only some inputs accept.
struct Extra {
    bool is_given = false;
    std::string_view name;
    std::vector<std::string_view> inputs;
};

std::string_view only_input(const PackInputs& in) {
    std::vector<std::string_view> given;
    if (!in.images.empty() || !in.labels.empty()) given.push_back("images");
    if (!in.npy.empty()) given.push_back("npy");
    if (!in.cifar10.empty()) given.push_back("cifar10");
    if (!in.cifar100.empty()) given.push_back("cifar100");
    if (!in.csv.empty()) given.push_back("csv");
    if (!in.hdf5.empty()) given.push_back("hdf5");
    if (!in.folder.empty()) given.push_back("folder");
    if (!in.text.empty()) given.push_back("text");
    if (!in.tokens.empty()) given.push_back("tokens");
    check(!given.empty(),
          "E105",
          "no input is given",
          "--images and --labels, --npy, --cifar10, --cifar100, --csv, --hdf5, "
          "--folder, --text or --tokens say what is to be packed",
          "see --help");
    check_fits(given.size() == 1,
               fmt::format("several inputs are given: --{}", fmt::join(given, ", --")),
               "a data set is packed from one input",
               "drop all but one");
    return given[0];
}

void check_extras(const PackInputs& in, std::string_view input) {
    const CsvOptions& csv = in.csv_columns;
    const CsvOptions usual;
    const std::array<Extra, 22> extras{
        {{!in.fields.empty(), "field", {"hdf5"}},
         {in.follows_links, "follow-links", {"hdf5"}},
         {in.is_sample_a_file, "sample-a-file", {"hdf5"}},
         {in.memory != SourceOptions{}.memory_bytes, "memory", {"hdf5"}},
         {in.layout != ImageLayout::unstated, "layout", {"images", "npy", "hdf5"}},
         {in.color != Color::as_first, "color", {"folder", "hdf5"}},
         {!in.resize.empty(), "resize", {"folder", "hdf5"}},
         {!in.masks.empty(), "masks", {"folder"}},
         {!in.mask_values.empty(), "mask-values", {"folder"}},
         {!csv.label.empty(), "label", {"csv"}},
         {!csv.targets.empty(), "target", {"csv"}},
         {!csv.drop.empty(), "drop", {"csv"}},
         {!csv.categorical.empty(), "categorical", {"csv"}},
         {csv.missing != usual.missing, "missing", {"csv"}},
         {in.table_text.decimal.has_value(), "decimal", {"csv"}},
         {!in.like.empty(), "like", {"csv"}},
         {csv.header != usual.header, "header", {"csv"}},
         {csv.separator != usual.separator, "separator", {"csv"}},
         {csv.type != usual.type, "real", {"csv"}},
         {!in.table_text.encoding.empty(), "encoding", {"csv"}},
         {in.length > 0, "length", {"text", "tokens"}},
         {in.token_type != RawTokens::none, "token-type", {"tokens"}}}};
    for (const Extra& extra : extras)
        check_fits(!extra.is_given || std::ranges::find(extra.inputs, input) != extra.inputs.end(),
                   fmt::format("--{} does not go with --{}", extra.name, input),
                   fmt::format("it is for --{}", fmt::join(extra.inputs, ", --")));
}

void need(bool is_given, std::string_view name, std::string_view with) {
    check(is_given, [&] {
        return Error(
            "E105", fmt::format("--{} is missing; --{} needs it", name, with), "", "see --help");
    });
}

// That of a packed data set, or of the training data of a run.
Manifest manifest_of(const fs::path& folder) {
    const fs::path kept = RunPaths{folder}.data();
    if (fs::exists(status_of(kept)))
        return parse_manifest(read_file(kept), kept.string(), ManifestKind::kept);
    return parse_manifest(read_manifest_text(folder), (folder / manifest_name).string());
}

// Takes the options that the data set of --like was packed with.
void follow_like(CsvOptions& csv, const fs::path& like) {
    const CsvOptions usual;
    check_fits(csv.drop.empty() && csv.categorical.empty() && csv.missing == usual.missing &&
                   csv.type == usual.type,
               "--like goes with none of --drop, --categorical, --missing and --real",
               fmt::format("'{}' was packed with its own", like.string()),
               "drop them");
    const Manifest manifest = manifest_of(like);
    const auto found = std::ranges::find(manifest.fields, "features", &Field::name);
    check_fits(found != manifest.fields.end() && found->shape.size() == 1,
               fmt::format("--like names '{}', which was no table", like.string()),
               "it has no 'features' [columns]",
               "drop --like");
    csv.like = *found;
    csv.missing = found->table.missing;
    csv.type = found->type;
}

std::unique_ptr<RowSource> open_table(const PackInputs& in, const SourceOptions& options) {
    CsvOptions csv = in.csv_columns;
    check_fits(csv.label.empty() || csv.targets.empty(),
               "--label and --target are both given",
               "a model predicts classes (--label) or numbers (--target)");
    if (!in.like.empty()) follow_like(csv, in.like);
    in.table_text.apply(csv);
    return open_csv(in.csv, csv, options);
}

std::unique_ptr<RowSource> open_pictures(const PackInputs& in, const ImageFit& images) {
    need(!in.masks.empty() || in.mask_values.empty(), "masks", "mask-values");
    FolderOptions options{.images = images};
    if (!in.mask_values.empty()) options.mask_values = parse_mask_values(in.mask_values);
    return in.masks.empty() ? open_folder(in.folder, options)
                            : open_masked_folder(in.folder, in.masks, options);
}

std::vector<fs::path> paths(const std::vector<std::string>& texts) {
    return {texts.begin(), texts.end()};
}

OptionSection kinds(PackInputs& in) {
    return {
        "Input, one of",
        {path_option("images FILE", in.images, "images (u8) in an IDX (gzip or not) or NPY file"),
         path_option("labels FILE", in.labels, "classes of --images, in the same format"),
         list_option(
             "npy NAME=FILE",
             in.npy,
             "field NAME from an NPY file, or from an array of a .npz: NAME=FILE.npz:ARRAY"),
         list_option("cifar10 DIR|FILE", in.cifar10, "CIFAR-10's binary version"),
         list_option("cifar100 DIR|FILE", in.cifar100, "CIFAR-100's binary version"),
         path_option("csv FILE", in.csv, "table with one sample per line"),
         data_option(
             "hdf5", in.hdf5, "HDF5 file, folder or pattern, with --field; several may follow"),
         path_option("folder DIR",
                     in.folder,
                     "PNG, JPEG, TIFF, PPM or PGM images in one sub-folder per class; with --masks "
                     "images in it"),
         list_option("text FILE", in.text, "text, each byte a token; several files may follow"),
         list_option("tokens FILE", in.tokens, "tokens in NPY or raw files; several may follow")}};
}

OptionSection table_details(PackInputs& in) {
    CsvOptions& csv = in.csv_columns;
    std::vector<Option> options{
        text_option(
            "label COLUMN", csv.label, "with --csv: column of classes, by name or number from 1"),
        list_option("target COLUMN",
                    csv.targets,
                    "with --csv: column of numbers to be predicted; several: [K]"),
        list_option("drop COLUMN", csv.drop, "with --csv: columns to leave out"),
        list_option("categorical COLUMN",
                    csv.categorical,
                    "with --csv: columns of texts; each text becomes a number, 1 or 0"),
        enum_option("missing error|drop|mean",
                    csv.missing,
                    "with --csv: for cells without a value (empty, NA, nan, null, ?): end; leave "
                    "out their lines; fill features with the mean of their column"),
        path_option("like DIR",
                    in.like,
                    "with --csv: packed training data or a run, whose columns, categories and "
                    "means this table gets"),
        enum_option("header auto|yes|no",
                    csv.header,
                    "with --csv: whether the first line has names; auto: if it has no number"),
        choice_option("separator",
                      csv.separator,
                      {{"comma", ','}, {"semicolon", ';'}, {"tab", '\t'}},
                      "with --csv: between columns"),
        choice_option("real",
                      csv.type,
                      {{"f32", ElementType::f32}, {"f64", ElementType::f64}},
                      "with --csv: type of numbers")};
    return {"About a table", std::move(options)};
}

OptionSection details(PackInputs& in) {
    return {
        "About the input",
        {bytes_option(
             "memory",
             in.memory,
             "with --hdf5: most memory that reading takes; a whole chunk is expanded at a time"),
         flag_option("sample-a-file",
                     in.is_sample_a_file,
                     "with --hdf5: each file holds one sample, whose data sets have no dimension "
                     "that counts samples"),
         enum_option("layout auto|chw|hwc",
                     in.layout,
                     "layout of images with --images, --npy and --hdf5; auto: chw; shapes that "
                     "may be hwc are an error"),
         enum_option("color auto|rgb|gray",
                     in.color,
                     "with --folder, and encoded images of --hdf5: channels of all images; auto: "
                     "those of the first image"),
         text_option("resize HxW",
                     in.resize,
                     "with --folder, and encoded images of --hdf5: size that images are resized "
                     "to; unset: all must have the same size"),
         path_option("masks DIR",
                     in.masks,
                     "with --folder: masks of its images, PNG, TIFF or PGM of one channel with the "
                     "image's name; palette indices are classes"),
         text_option("mask-values V0,V1,...",
                     in.mask_values,
                     "with --masks: pixels that are class 0, 1, ..., such as 0,255; unset: pixels "
                     "are class numbers"),
         whole_option(
             "length",
             in.length,
             {0, 1 << 24},
             "with --text and --tokens: tokens that a model is given; a sample has one more"),
         enum_option("token-type npy|u16|u32",
                     in.token_type,
                     "with --tokens: what raw files hold, little-endian; npy: all are NPY files")}};
}

}  // namespace

void TableText::apply(CsvOptions& csv) const {
    const TableForm form = csv.like ? csv.like->table : TableForm{};
    csv.decimal = decimal.value_or(form.decimal);
    csv.encoding = encoding.empty() ? form.encoding : encoding;
}

OptionSection table_text_group(TableText& text) {
    return {
        "Text of a table",
        {choice_option(
             "decimal",
             text.decimal,
             {{"auto", std::nullopt}, {"point", DecimalSign::point}, {"comma", DecimalSign::comma}},
             "with a table: before the decimals of numbers; auto: as in the training table, else a "
             "point"),
         text_option("encoding NAME",
                     text.encoding,
                     "with a table: of its text, as iconv calls it (latin1, cp1252, utf-16); "
                     "unset: as in the training table, else bytes as they are")}};
}

OptionTable pack_input_sections(PackInputs& inputs) {
    return {kinds(inputs),
            details(inputs),
            foreign_group(inputs.fields, inputs.follows_links),
            table_details(inputs),
            table_text_group(inputs.table_text)};
}

void add_files(PackInputs& inputs, const std::vector<std::string>& files) {
    if (files.empty()) return;
    if (!inputs.hdf5.empty()) {
        inputs.hdf5 += "," + data_of_words(files).native();
        return;
    }
    for (auto* list : {&inputs.text, &inputs.tokens, &inputs.cifar10, &inputs.cifar100})
        if (!list->empty()) {
            list->insert(list->end(), files.begin(), files.end());
            return;
        }
    throw Error("E101",
                fmt::format("unexpected argument '{}'", printable(files.front())),
                "only --text, --tokens, --hdf5 and --cifar take several files",
                "put the option of its kind before the file: 'lockstep data pack --help'");
}

std::unique_ptr<RowSource> open_inputs(const PackInputs& in,
                                       const std::string& split,
                                       const ReadReport& report) {
    const std::string_view input = only_input(in);
    check_extras(in, input);
    SourceOptions options{.report = report,
                          .links = in.follows_links ? Links::followed : Links::refused,
                          .images = {.color = in.color},
                          .is_sample_a_file = in.is_sample_a_file,
                          .memory_bytes = in.memory};
    if (!in.resize.empty()) options.images.resize = parse_image_size("resize", in.resize);
    if (input == "images") {
        need(!in.images.empty(), "images", "labels");
        need(!in.labels.empty(), "labels", "images");
        return open_images(in.images, in.labels, in.layout, options);
    }
    if (input == "npy") {
        std::vector<NamedInput> arrays;
        for (const std::string& text : in.npy) arrays.push_back(parse_named_input("npy", text));
        return open_npy(arrays, in.layout, options);
    }
    if (input == "cifar10") return open_cifar10(paths(in.cifar10), split);
    if (input == "cifar100") return open_cifar100(paths(in.cifar100), split);
    if (input == "csv") return open_table(in, options);
    if (input == "folder") return open_pictures(in, options.images);
    const bool is_language = input == "text" || input == "tokens";
    need(!is_language || in.length > 0, "length", input);
    const auto length = static_cast<std::uint64_t>(in.length);
    if (input == "text") return open_text(paths(in.text), length);
    if (input == "tokens") return open_tokens(paths(in.tokens), length, in.token_type);
    need(!in.fields.empty(), "field", "hdf5");
    const std::vector<FieldMapping> fields = parse_field_mappings(in.fields);
    check_fits(in.resize.empty() || std::ranges::count(fields, "masks", &FieldMapping::name) == 0,
               "--resize does not go with --hdf5 and masks",
               "it would change the images, and not the masks",
               "drop --resize");
    return open_hdf5(foreign_files(in.hdf5), fields, in.layout, options);
}

}  // namespace lockstep
