// SPDX-License-Identifier: Apache-2.0
// Collects what is known of data: of files of others their data sets, of fields how they lie.
// Tested: data/check/inspect_test.cpp

#include "lockstep/core/error.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/check.hpp"
#include "lockstep/data/dataset_index.hpp"
#include "lockstep/data/manifest.hpp"

#include "hdf5/contents.hpp"
#include "hdf5/look.hpp"
#include "hdf5/stored_blocks.hpp"
#include "inspection.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

namespace {

std::string storage_text(const DatasetFacts& facts) {
    using enum StorageLayout;
    if (facts.layout == contiguous) return "contiguous";
    if (facts.layout == elsewhere || facts.layout == linked) return "in other files";
    if (facts.layout != chunked) return "";
    std::string text = fmt::format("chunks [{}]", fmt::join(facts.chunk, ", "));
    for (const FilterFacts& filter : facts.filters)
        text += ", " + (is_known_filter(filter.kind)
                            ? filter_text({{static_cast<FilterKind>(filter.kind)}})
                            : "filter " + filter_name(filter.kind));
    return text;
}

// As --data: what was given, or the folder that has just these files, where a shell named them all.
fs::path data_of(const fs::path& where, std::vector<fs::path> files) {
    if (files.size() < 2 || where.native().find(',') == fs::path::string_type::npos) return where;
    const fs::path folder = files[0].parent_path().empty() ? "." : files[0].parent_path();
    std::ranges::sort(files);
    const auto normal = [](const fs::path& file) { return fs::absolute(file).lexically_normal(); };
    try {
        const bool are_all = std::ranges::equal(foreign_files(folder), files, {}, normal, normal);
        return are_all ? folder : where;
    } catch (const Error&) {
        return where;
    }
}

// The first and up to 16 others from all over them.
std::vector<fs::path> some_of(const std::vector<fs::path>& files) {
    constexpr std::size_t most_others = 16;
    const std::size_t others = files.size() - 1, opened = std::min(others, most_others);
    std::vector<fs::path> some{files[0]};
    for (std::size_t i = 0; i < opened; ++i) some.push_back(files[1 + i * others / opened]);
    return some;
}

// With what is known of them: one number a sample may be a class, if there are not so many that
// they are ids.
void count_classes(const SampledRows& sample, InspectedData& data) {
    constexpr std::size_t most_classes = 100;
    const bool has_one = sample.shape.empty() || (sample.shape.size() == 1 && sample.shape[0] == 1);
    if (!has_one) return;
    for (const auto& [number, count] : whole_counts(sample, most_classes)) {
        data.class_names.push_back(std::to_string(number));
        data.class_counts.push_back(count);
    }
    data.classes_in_rows = sample.rows;
}

// If `fields` lie in one of several groups with data sets of these names, the group that holds
// these groups, and the names of the data sets in each; else none.
std::vector<FieldMapping> fields_of_groups(const std::vector<FieldMapping>& fields,
                                           const std::vector<Candidate>& all) {
    const auto parent = [](const std::string& path) { return path.substr(0, path.rfind('/')); };
    const std::string group = parent(fields[0].hdf5_path), above = parent(group);
    std::vector<FieldMapping> found{{"", above.empty() ? "/" : above}};
    for (const FieldMapping& field : fields) {
        if (group.empty() || parent(field.hdf5_path) != group) return {};
        const std::string name = field.hdf5_path.substr(group.size());
        const bool has_others = std::ranges::any_of(all, [&](const Candidate& each) {
            const std::string other = parent(each.name);
            return !other.empty() && other != group && parent(other) == above &&
                   each.name == other + name;
        });
        if (!has_others) return {};
        found.push_back({"", name.substr(1)});
    }
    return found;
}

// Returns the group of `first` if its data sets are lists of bytes of several lengths, as encoded
// images are; else "".
std::string group_of_images(const Candidate& first, const std::vector<Candidate>& all) {
    const std::string group = first.name.substr(0, first.name.rfind('/'));
    bool are_several = false;
    for (const Candidate& each : all) {
        if (!each.name.starts_with(group + "/")) continue;
        const DatasetFacts& facts = each.facts;
        if (facts.size.size() != 1 || !facts.number || facts.number->bytes != 1) return "";
        are_several = are_several || facts.size != first.facts.size;
    }
    return are_several ? group : "";
}

// Returns the reason why no data set of the first file can be a model's input, and the remedy.
TrainCommand no_input(AskedFiles asked, const std::vector<Candidate>& all) {
    const auto columns = std::ranges::find_if(
        all, [](const Candidate& each) { return each.facts.has_one_number_a_row(); });
    if (columns == all.end())
        return {"", "no data set has rows that can be a model's input", "give another file"};
    if (const std::string group_name = group_of_images(*columns, all); !group_name.empty()) {
        asked.fields = {{"images", group_name}};
        const Error group = no_such_dataset(asked.files[0], asked, 0);
        return {"", group.why(), group.fix()};
    }
    asked.fields = {{"labels", columns->name}};
    return {"",
            fmt::format("'{}' has one value for each sample, and a model's input has several",
                        columns->name),
            way_to_add(asked, "the inputs", "features")};
}

class Inspecting {
  public:
    Inspecting(const fs::path& where, const InspectOptions& options) : options_(options) {
        all_.fields = options.fields;
        const ForeignPlace place =
            options.fields.empty() ? foreign_place(where, options.links) : ForeignPlace{};
        if (place.files.empty())
            look_at_fields(where);
        else
            look_at_files(place, where);
        if (all_.index) all_.layout = layout_report(all_.index, options.job);
        if (all_.train.obstacle.empty()) all_.train = train_command(all_);
        if (!place.files.empty()) look_at_samples(place);
        if (!options.sheet.empty()) write_sheet();
    }

    const Inspection& all() const { return all_; }

  private:
    void look_at_fields(const fs::path& where) {
        all_.index =
            std::make_shared<const DatasetIndex>(DatasetIndex::open(where, options_.fields));
        if (!options_.fields.empty()) all_.files = foreign_files(where);
        all_.data = data_of(where, all_.files);
        for (std::size_t f = 0; f < all_.index->fields().size(); ++f) {
            const Field& field = all_.index->fields()[f];
            InspectedData data{.name = field.name,
                               .type = std::string(element_name(field.type)),
                               .size = {all_.index->samples()}};
            data.size.insert(data.size.end(), field.shape.begin(), field.shape.end());
            read_values(all_.index, f, field.name == "images", data);
            take_classes(field, data);
            all_.all.push_back(std::move(data));
        }
    }

    void look_at_files(const ForeignPlace& place, const fs::path& where) {
        const std::vector<fs::path>& files = all_.files = place.files;
        all_.data = data_of(where, files);
        all_.title = fmt::format("{}, {}", files[0].string(), bytes_text(fs::file_size(files[0])));
        if (files.size() > 1)
            all_.title += fmt::format(", the first of {} files", grouped(files.size()));
        all_.is_cut_off = place.all.size() >= most_listed;
        const std::vector<FieldMapping> input = suggested_mappings(place.all);
        std::vector<std::optional<KnownValues>> known;
        for (const Candidate& each : place.all) {
            InspectedData data{.name = each.name,
                               .type = each.facts.type_text,
                               .size = each.facts.size,
                               .storage = storage_text(each.facts),
                               .obstacle = each.obstacle};
            const bool is_images =
                !input.empty() && input[0].name == "images" && input[0].hdf5_path == each.name;
            if (each.rows) read_values(each.rows, 0, is_images, data);
            known.push_back(known_values(data));
            all_.all.push_back(std::move(data));
        }
        all_.fields = suggested_mappings(place.all, known);
        for (std::size_t f = 0; f < all_.fields.size(); ++f)
            if (all_.fields[f].cf) unpack(files, f == 0, all_.fields[f]);
        all_.others.files = files.size() - 1;
        if (all_.fields.empty()) all_.fields = without_obstacles(place.all);
        if (all_.fields.empty())
            all_.train = no_input({files, {}, ImageLayout::unstated, options_.links}, place.all);
        else
            open_fields();
        if (files.size() == 2 && all_.train.line.empty() && !all_.index) join_two(place);
    }

    Candidate unpacked(const fs::path& file, const FieldMapping& field, double instead) const {
        return candidate_of(file,
                            {.name = "field",
                             .hdf5_path = field.hdf5_path,
                             .layout = RowLayout::value,
                             .cf = CfValues{instead},
                             .links = options_.links});
    }

    // Shows and judges the numbers that the stored ones stand for. A missing number of the input
    // needs another one in its place, and rows that were not read may have some.
    void unpack(const std::vector<fs::path>& files, bool is_input, FieldMapping& field) {
        InspectedData& data = *std::ranges::find(all_.all, field.hdf5_path, &InspectedData::name);
        const Candidate found = unpacked(files[0], field, std::nan(""));
        if (!found.rows) return;
        data.class_names.clear();
        data.class_counts.clear();
        data.type += " by :cf";
        read_values(found.rows, 0, field.name == "images", data);
        if (!is_input || !data.values || data.values->count == 0) return;
        const CfPacking& packing = found.facts.cf->packing;
        const bool may_lack = !packing.missing.empty() || packing.least || packing.most;
        const bool is_all = files.size() == 1 && data.rows_read == data.size[0];
        if (data.values->not_finite == 0 && (!may_lack || is_all)) return;
        field.cf->instead = std::stod(fmt::format("{:.4g}", data.values->mean));
        if (data.values->not_finite == 0) return;
        InspectedData filled = data;
        read_values(unpacked(files[0], field, *field.cf->instead).rows, 0, false, filled);
        data.replaced = data.values->not_finite - filled.values->not_finite;
    }

    // The inputs may lie in one of two files, and what is learned in the other.
    void join_two(const ForeignPlace& place) {
        std::vector<Candidate> all = place.all;
        for (Candidate& each : candidates_of(place.files[1], options_.links)) {
            if (std::ranges::find(all, each.name, &Candidate::name) != all.end()) return;
            all.push_back(std::move(each));
        }
        std::vector<FieldMapping> fields = suggested_mappings(all);
        if (fields.size() != 2) return;
        const auto file_of = [&](const FieldMapping& field) {
            const auto at = std::ranges::find(place.all, field.hdf5_path, &Candidate::name);
            return place.files[at == place.all.end() ? 1 : 0];
        };
        const fs::path inputs = file_of(fields[0]);
        fields[1].file = file_of(fields[1]);
        if (fields[1].file == inputs) return;
        all_.train.fix = fmt::format(
            "give them as files of one data set: lockstep data inspect {} --field {} --field {}",
            shell_word(inputs.string()),
            shell_word(mapping_text(fields[0])),
            shell_word(mapping_text(fields[1])));
    }

    // Where numbers cannot be read, missing ones cannot be looked for.
    static std::vector<FieldMapping> suggested_unread(const std::vector<Candidate>& all) {
        std::vector<FieldMapping> fields = suggested_mappings(all);
        for (FieldMapping& field : fields)
            if (field.cf) field.cf->instead = std::nan("");
        return fields;
    }

    // Returns the fields without regard to obstacles: opening them gives the remedy.
    static std::vector<FieldMapping> without_obstacles(std::vector<Candidate> all) {
        std::vector<FieldMapping> fields;
        for (Candidate& each : all) {
            if (fields.empty() && !each.obstacle.empty()) fields = {{"features", each.name}};
            each.obstacle.clear();
        }
        const std::vector<FieldMapping> suggested = suggested_unread(all);
        return suggested.empty() ? fields : suggested;
    }

    void open_fields() {
        for (FieldMapping& field : all_.fields) field.links = options_.links;
        const std::vector<fs::path> opened = options_.job ? all_.files : some_of(all_.files);
        all_.others.opened = opened.size() - 1;
        try {
            all_.index = std::make_shared<const DatasetIndex>(
                open_files(opened, all_.fields, {.telling = Telling::nothing}));
        } catch (const Error& error) {
            const std::string why = error.why().empty() ? "" : ": " + error.why();
            all_.train = {"", error.code() + std::string(": ") + error.what() + why, error.fix()};
            if (opened.size() > 1) all_.others.fault = all_.train.obstacle;
            return;
        }
        for (const Field& field : all_.index->fields())
            take_classes(field, *std::ranges::find(all_.all, field.source, &InspectedData::name));
    }

    // Where the files hold one sample each, a single value, or a mask of the whole, says so.
    void look_at_samples(const ForeignPlace& place) {
        std::vector<Candidate> samples = place.all;
        bool has_value = false;
        for (Candidate& each : samples) {
            has_value = has_value || (each.facts.size.empty() && each.facts.number);
            if (each.facts.number) each.obstacle.clear();
            each.facts.size.insert(each.facts.size.begin(), 1);
        }
        const std::vector<FieldMapping> fields = suggested_unread(samples);
        if (fields.size() != 2) return;
        const std::vector<FieldMapping> groups = fields_of_groups(fields, place.all);
        const bool are_several = place.files.size() > 1 || !groups.empty();
        const bool has_mask = fields[1].name == "masks" && are_several && all_.fields.size() == 2 &&
                              all_.fields[1].name != "masks";
        if (!has_mask && !(has_value && all_.train.line.empty())) return;
        all_.train.fix =
            groups.empty()
                ? "if each file holds one sample, make shards of them: " +
                      sample_a_file_command(
                          {place.files, fields, ImageLayout::unstated, options_.links})
                : "if each group is a sample, let h5py stack them, in the order of their names, in "
                  "a folder NAME that you give instead: " +
                      write_anew_command(
                          {place.files, groups},
                          0,
                          "{k:n.stack([x[s][k][()] for s in g]) for k in [r.pop(0) for _ in r[:]]}",
                          "i[d]; g=[s for s in sorted(x,key=lambda k:(len(k),k)) if "
                          "isinstance(x[s],h5py.Group) and r[0] in x[s]]");
    }

    // Damage is said, and hinders nothing else.
    void read_values(const std::shared_ptr<const DatasetIndex>& index,
                     std::size_t field,
                     bool are_images,
                     InspectedData& data) {
        std::optional<SampledRows> sample;
        try {
            sample = sample_rows(index, field);
        } catch (const Error& error) {
            data.fault = error.code() + std::string(": ") + error.what();
            data.remedy = error.fix().empty() ? "copy the data again" : error.fix();
            data.is_damaged = true;
            return;
        }
        if (!sample) {
            data.fault = "too large a chunk or sample to read some";
            return;
        }
        data.values = summary_of(*sample);
        data.is_one_hot = is_one_hot(*sample);
        data.rows_read = sample->rows;
        count_classes(*sample, data);
        const std::size_t dimensions = sample->shape.size();
        if (are_images && !options_.sheet.empty() && dimensions >= 2 && dimensions <= 3)
            images_ = std::move(sample);
    }

    // Those that were counted in full.
    void take_classes(const Field& field, InspectedData& data) const {
        const bool are_tokens = field.name == "tokens" && !all_.is_of_fields();
        if (field.class_counts.empty() || are_tokens) return;
        data.class_names = field.class_names;
        data.class_counts = field.class_counts;
        data.are_classes_numbered = true;
        data.classes_in_rows = all_.index->samples();
    }

    static std::optional<KnownValues> known_values(const InspectedData& data) {
        if (!data.values || data.values->count == 0) return {};
        const ValueSummary& values = *data.values;
        return KnownValues{
            values.least, values.most, values.are_whole && values.not_finite == 0, data.is_one_hot};
    }

    PixelOrder order() const {
        if (images_->shape.size() == 2) return PixelOrder::plane;
        const bool is_last = all_.index ? has_channels_last(all_.index->field("images"))
                                        : all_.fields[0].layout == RowLayout::hwc;
        return is_last ? PixelOrder::channels_last : PixelOrder::channels_first;
    }

    void write_sheet() {
        check(images_.has_value(),
              "E217",
              fmt::format("there are no images for '{}'", options_.sheet.string()),
              "images are [samples, C, H, W], [samples, H, W, C] or [samples, H, W] of "
              "numbers that can be streamed",
              "leave out --png");
        write_named_file(options_.sheet, encoded_png(contact_sheet(*images_, order())));
        all_.sheet = ImageSheet{options_.sheet, images_on_sheet(*images_), images_->of};
    }

    const InspectOptions& options_;
    Inspection all_;
    std::optional<SampledRows> images_;
};

}  // namespace

const InspectedData* Inspection::data_of(const Field& field) const {
    const std::string& name = is_of_fields() ? field.name : field.source;
    const auto found = std::ranges::find(all, name, &InspectedData::name);
    return found == all.end() ? nullptr : &*found;
}

std::string inspect_data(const fs::path& where, const InspectOptions& options) {
    check(options.sheet.empty() || !fs::exists(options.sheet),
          "E407",
          fmt::format("'{}' exists already", options.sheet.string()),
          "'lockstep data inspect' does not overwrite files",
          "give another name, or remove it first");
    const Inspecting inspecting(where, options);
    return options.as_json ? inspection_json(inspecting.all())
                           : inspection_text(inspecting.all(), options.columns);
}

}  // namespace lockstep
