// SPDX-License-Identifier: Apache-2.0
// Labels of foreign files, read once when the files are opened: numbers are counted, texts and
// one-hot rows become numbers, which the index keeps.
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "foreign.hpp"
#include "format/labels.hpp"
#include "row_layout.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t hot_bytes_at_once = std::uint64_t{8} << 20;

// Text of "masks" or "tokens" is no class.
bool may_be_named(const FieldMapping& mapping) {
    return mapping.layout == RowLayout::label ||
           (mapping.layout == RowLayout::unstated && mapping.name == "labels");
}

}  // namespace

bool ForeignOpening::is_label(std::size_t field) const {
    const FieldMapping& mapping = mappings_[field];
    const Field& made = manifest_.fields[field];
    const bool is_possible = is_of_classes(made) || (made.shape.empty() && is_whole(made.type));
    check(is_possible || mapping.layout != RowLayout::label, [&] {
        const std::string place = mapping.hdf5_path;
        return Error(
            "E235",
            fmt::format("field '{}' is no label: samples of '{}' are {} [{}]",
                        mapping.name,
                        place,
                        element_name(made.type),
                        fmt::join(made.shape, ", ")),
            "a label is one whole number or text per sample; of 'masks' [H, W] one number per "
            "pixel, of 'tokens' [T] per place",
            made.shape.size() == 1
                ? fmt::format(
                      "if each row has one 1 and else 0: --field {0}={1}:onehot; if several "
                      "may be 1: --field {0}={1}",
                      mapping.name,
                      place)
            : made.shape.size() == 2
                ? fmt::format("if each pixel has a class: --field masks={}:label", place)
                : fmt::format(
                      "to predict these numbers, give --field targets={} of a folder NAME: {}",
                      place,
                      rewrite_command(asked_files(), field, "x.reshape(len(x), -1)")));
    });
    return may_be_label(mapping) && is_possible;
}

// Returns true if the labels of the current file are names of classes.
bool ForeignOpening::is_text(std::size_t field) const {
    return is_column_of_texts(facts_.datasets[field]) && may_be_named(mappings_[field]);
}

// Returns true if class numbers are made of the files' values.
bool ForeignOpening::is_made(std::size_t field) const {
    return labels_[field].is_text || mappings_[field].layout == RowLayout::one_hot;
}

void ForeignOpening::check_same_form(std::size_t number, std::size_t field) const {
    check(number == 0 || is_text(field) == labels_[field].is_text, [&] {
        const auto form = [](bool is_text) { return is_text ? "text" : "no text"; };
        return Error("E208",
                     fmt::format("'{}' of '{}' does not fit the other files",
                                 mappings_[field].hdf5_path,
                                 files_[number].string()),
                     fmt::format("it is {}, in '{}' it is {}",
                                 form(is_text(field)),
                                 files_[0].string(),
                                 form(labels_[field].is_text)));
    });
}

// Notes an enumeration's names of classes; all files must agree.
void ForeignOpening::note_labels(std::size_t number, std::size_t field) {
    Labels& labels = labels_[field];
    labels.is_text = is_text(field);
    for (const auto& [name, value] : facts_.datasets[field].members) {
        if (value < 0 || value >= max_classes) continue;  // E210 where a sample has it
        const auto [at, is_new] = labels.names.try_emplace(value, name);
        check(is_new || at->second == name, [&] {
            return Error(
                "E208",
                fmt::format("class {} of '{}' is '{}' in '{}'",
                            value,
                            mappings_[field].hdf5_path,
                            printable(name),
                            files_[number].string()),
                fmt::format("in '{}' it is '{}'", labels.named_by.string(), printable(at->second)),
                "write enumerations with the same members");
        });
        if (labels.named_by.empty()) labels.named_by = files_[number];
    }
}

RowsOfFile ForeignOpening::rows_of(std::size_t number, std::size_t field) const {
    return {files_[number],
            mappings_[field].hdf5_path,
            shard_of(number).samples,
            mappings_[field].links};
}

LabelColumn ForeignOpening::texts_of(std::size_t field) {
    TextLabels labels;
    for (std::size_t number = 0; number < files_.size(); ++number)
        labels.add(sandbox_, rows_of(number, field));
    return labels.finish();
}

LabelColumn ForeignOpening::hot_rows_of(const DatasetIndex& index, std::size_t field) const {
    const Field& stored = index.fields()[field];
    HotLabels labels(static_cast<std::uint64_t>(stored.shape.at(0)));
    ShardFiles files(std::shared_ptr<const DatasetIndex>(std::shared_ptr<void>(), &index));
    BlockReader reader(files, field);
    const std::uint64_t row_bytes = stored.bytes_per_sample();
    const std::uint64_t most = std::max<std::uint64_t>(hot_bytes_at_once / row_bytes, 1);
    std::vector<std::byte> rows;
    for (std::size_t number = 0; number < files_.size(); ++number) {
        const Shard& shard = shard_of(number);
        for (std::uint64_t first = 0; first < shard.samples; first += most) {
            const std::uint64_t count = std::min(most, shard.samples - first);
            rows.resize(count * row_bytes);
            reader.read_rows(field, shard.first_sample + first, count, rows);
            labels.add(stored.type, rows, rows_of(number, field), first);
        }
    }
    return labels.finish();
}

// In blocks like those of files, so that a window reads no more than its own.
void ForeignOpening::keep(DatasetIndex& index, std::size_t field, const LabelColumn& column) {
    Field& made = manifest_.fields[field];
    made.type = column.type();
    made.shape.clear();
    made.layout.clear();
    made.class_counts = column.counts;
    made.class_names = column.names;
    const std::vector<std::byte> bytes = column.bytes();
    const std::uint64_t begin = index.kept_.size(), row_bytes = made.bytes_per_sample();
    index.kept_.insert(index.kept_.end(), bytes.begin(), bytes.end());
    index.stored_[field].clear();
    for (const RowBlock& block : index.blocks())
        index.stored_[field].push_back({.first_row = block.first,
                                        .offset = begin + block.first * row_bytes,
                                        .stored_bytes = block.rows * row_bytes,
                                        .decoded_bytes = block.rows * row_bytes,
                                        .rows = block.rows,
                                        .shard = kept_in_index});
}

// By the names of an enumeration; classes without one are called by their number.
void ForeignOpening::name_classes(Field& field,
                                  const std::map<std::int64_t, std::string>& names) const {
    if (names.empty()) return;
    const auto classes = static_cast<std::size_t>(names.rbegin()->first) + 1;
    field.class_counts.resize(std::max(field.class_counts.size(), classes));
    for (std::size_t number = 0; number < field.class_counts.size(); ++number) {
        const auto name = names.find(static_cast<std::int64_t>(number));
        field.class_names.push_back(name == names.end() ? fmt::format("{}", number) : name->second);
    }
}

// One-hot labels, as Keras' users have them, look like several classes per sample.
void ForeignOpening::suggest_one_hot() const {
    for (std::size_t f = 0; f < mappings_.size(); ++f) {
        const FieldMapping& mapping = mappings_[f];
        const Field& field = manifest_.fields[f];
        if (mapping.name == "labels" && mapping.layout == RowLayout::unstated &&
            field.shape.size() == 1)
            once(Level::info,
                 "labels are [n, {0}], taken for {0} labels a sample; if each row has one 1 and "
                 "else 0, write --field {1}={2}:onehot",
                 field.shape[0],
                 mapping.name,
                 mapping.hdf5_path);
    }
}

void ForeignOpening::read_labels(DatasetIndex& index) {
    for (std::size_t f = 0; f < mappings_.size(); ++f)
        if (labels_[f].is_text)
            keep(index, f, texts_of(f));
        else if (mappings_[f].layout == RowLayout::one_hot)
            keep(index, f, hot_rows_of(index, f));
        else if (is_label(f)) {
            manifest_.fields[f].class_counts = counted_classes(index, f);
            name_classes(manifest_.fields[f], labels_[f].names);
        }
}

}  // namespace lockstep
