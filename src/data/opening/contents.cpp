// SPDX-License-Identifier: Apache-2.0
#include "contents.hpp"

#include "lockstep/core/shell_word.hpp"
#include "lockstep/data/axes.hpp"
#include "lockstep/data/foreign.hpp"

#include "foreign.hpp"
#include "format/labels.hpp"
#include "hdf5/sandbox.hpp"
#include "hdf5/shard_probe.hpp"
#include "way_out.hpp"

#include <algorithm>
#include <numeric>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_lines = 20;

bool is_whole_number(const DatasetFacts& facts) {
    return facts.type ? is_whole(*facts.type) : facts.number && facts.number->is_whole;
}

bool may_be_classes(const DatasetFacts& facts) {
    return is_whole_number(facts) || is_column_of_texts(facts);
}

bool is_one_number_a_sample(const DatasetFacts& facts) {
    return facts.size.size() == 1 || (facts.size.size() == 2 && facts.size[1] == 1);
}

double elements(const DatasetFacts& facts) {
    return std::accumulate(
        facts.size.begin(), facts.size.end(), 1.0, [](double product, std::uint64_t size) {
            return product * static_cast<double>(size);
        });
}

std::string field_option(const std::string& mapping) {
    return "--field " + shell_word(mapping);
}

bool may_be_input(const Candidate& each) {
    const std::size_t dimensions = each.facts.size.size();
    return each.obstacle.empty() && dimensions >= 2 && dimensions <= 4 &&
           !is_one_number_a_sample(each.facts) && !each.facts.is_text;
}

// nullptr if nothing has one class for each of its samples.
const Candidate* label_for(const Candidate& input, const std::vector<Candidate>& all) {
    const auto label = std::ranges::find_if(all, [&](const Candidate& each) {
        return each.obstacle.empty() && is_one_number_a_sample(each.facts) &&
               may_be_classes(each.facts) && each.facts.size[0] == input.facts.size[0];
    });
    return label == all.end() ? nullptr : &*label;
}

// Of a model's input, by its dimensions: [n, C, H, W], [n, H, W] or [n, features].
FieldMapping input_mapping(const Candidate& input) {
    const std::vector<std::int64_t> shape(input.facts.size.begin() + 1, input.facts.size.end());
    if (shape.size() == 3)
        return {
            "images", input.name, may_have_channels_last(shape) ? RowLayout::hwc : RowLayout::chw};
    return {shape.size() == 2 ? "images" : "features", input.name};
}

std::string form_text(const DatasetFacts& facts) {
    if (facts.layout == StorageLayout::missing) return "a data set";  // and no more is known
    return fmt::format("{} [{}]", facts.type_text, fmt::join(facts.size, ", "));
}

// None where there are none: what to say then is not said here.
std::vector<fs::path> files_at(const fs::path& where) {
    try {
        return foreign_files(where);
    } catch (const Error&) {
        return {};
    }
}

}  // namespace

std::vector<Candidate> candidates_of(const fs::path& file) {
    std::vector<Candidate> all;
    for (const std::string& name : Sandbox().list(file).datasets) {
        const std::vector<FieldMapping> field{{"field", name, RowLayout::value}};
        all.push_back(ForeignOpening({file}, field).look());
        if (is_column_of_texts(all.back().facts)) all.back().obstacle.clear();
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

std::vector<FieldMapping> suggested_mappings(const std::vector<Candidate>& all) {
    const Candidate *input = nullptr, *label = nullptr;
    for (const Candidate& each : all) {
        if (!may_be_input(each)) continue;
        const Candidate* labels = label_for(each, all);
        const bool is_better = !input || (labels && !label) ||
                               (!labels == !label && elements(each.facts) > elements(input->facts));
        if (is_better) std::tie(input, label) = std::tuple(&each, labels);
    }
    if (!input) return {};
    std::vector<FieldMapping> mappings{input_mapping(*input)};
    if (label) mappings.push_back({"labels", label->name});
    return mappings;
}

std::string suggested_fields(const std::vector<Candidate>& all) {
    std::string options;
    for (const FieldMapping& mapping : suggested_mappings(all))
        options += (options.empty() ? "" : " ") + field_option(mapping_text(mapping));
    return options;
}

Error no_such_dataset(const fs::path& file, const std::string& wanted, const std::string& field) {
    const std::vector<Candidate> all = candidates_of(file);
    std::vector<std::string> names;
    for (const Candidate& each : all) names.push_back(each.name);
    const std::string meant = nearest_name(wanted, names), suggested = suggested_fields(all);
    return Error("E207",
                 fmt::format("'{}' has no data set '{}'", file.string(), wanted),
                 fmt::format("it was given as field '{}'; {}", field, list_text(all)),
                 !meant.empty()      ? fmt::format("did you mean '{}'? Then give {}",
                                              meant,
                                              field_option(field + "=" + meant))
                 : suggested.empty() ? "give the path of a data set"
                                     : "name what is there, such as " + suggested);
}

bool is_absent(const DatasetFacts& facts) {
    return facts.layout == StorageLayout::missing && facts.chunks.fault.empty();
}

void check_is_there(const DatasetFacts& facts, const fs::path& file, const FieldMapping& field) {
    if (is_absent(facts)) throw no_such_dataset(file, field.hdf5_path, field.name);
}

bool is_packed(const fs::path& where) {
    std::error_code failed;
    return fs::exists(where / manifest_name, failed);
}

namespace {

// What the first file has; nothing of `where` if that is no HDF5 of others.
struct Strangers {
    std::vector<fs::path> files;
    std::vector<Candidate> all;
};

Strangers strangers_at(const fs::path& where) {
    if (is_packed(where)) return {};
    std::vector<fs::path> files = files_at(where);
    if (files.empty() || !is_hdf5(files[0])) return {};
    check_is_whole_hdf5(files[0], 0);
    std::vector<Candidate> all = candidates_of(files[0]);
    return {std::move(files), std::move(all)};
}

Error no_packed_dataset(const fs::path& where, const Strangers& found, const std::string& fix) {
    return Error("E216",
                 fmt::format("'{}' is no packed data set", where.string()),
                 fmt::format("'{}' is HDF5 that somebody else wrote; {}",
                             found.files[0].string(),
                             list_text(found.all)),
                 fix.empty() ? "write it anew as numbers: it has no data set that can be a model's "
                               "input"
                             : fix);
}

}  // namespace

void check_needs_no_fields(const fs::path& where, const std::string& option) {
    const Strangers found = strangers_at(where);
    if (found.files.empty()) return;
    std::string suggested = suggested_fields(found.all);
    for (std::size_t at = 0; (at = suggested.find("--field", at)) != suggested.npos;
         at += option.size())
        suggested.replace(at, std::string_view("--field").size(), option);
    throw no_packed_dataset(
        where, found, suggested.empty() ? "" : "say which of it are fields, such as " + suggested);
}

void check_is_packed(const fs::path& where) {
    const Strangers found = strangers_at(where);
    if (found.files.empty()) return;
    const std::vector<FieldMapping> fields = suggested_mappings(found.all);
    throw no_packed_dataset(
        where,
        found,
        fields.empty() ? "" : "pack it first, such as " + pack_command({found.files, fields}));
}

}  // namespace lockstep
