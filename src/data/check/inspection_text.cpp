// SPDX-License-Identifier: Apache-2.0
// Inspected data as lines for a terminal, and as JSON for programs.
// Tested: data/check/inspect_test.cpp
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/data/manifest.hpp"

#include "inspection.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
void describe(Record& record, JobFit& fit) {
    LOCKSTEP_EACH(record.field, fit.job.ranks, fit.job.nodes, fit.job.batch, fit.lanes);
    LOCKSTEP_EACH(record.field, fit.lanes_of_rank, fit.window_bytes, fit.rank_bytes);
    LOCKSTEP_EACH(record.field, fit.read_amplification, fit.lanes_divide_evenly);
    LOCKSTEP_EACH(record.field, fit.shards_suffice, fit.resident_bytes);
    LOCKSTEP_EACH(record.field, fit.job.node_memory_bytes, fit.fits_in_memory);
}

void describe(Record& record, OtherFiles& others) {
    LOCKSTEP_EACH(record.field, others.files, others.opened, others.fault);
}

void describe(Record& record, InspectedData& data) {
    LOCKSTEP_EACH(record.field, data.name, data.type, data.size, data.storage, data.obstacle);
    LOCKSTEP_EACH(record.field, data.class_counts, data.class_names, data.classes_in_rows);
}

namespace {

Json json_of_values(const InspectedData& data) {
    if (!data.values) return {{"fault", data.fault}};
    Json json{{"rows_read", data.rows_read},
              {"finite", data.values->count},
              {"not_finite", data.values->not_finite}};
    if (data.values->count == 0) return json;
    json["least"] = data.values->least;
    json["most"] = data.values->most;
    json["mean"] = data.values->mean;
    return json;
}

Json json_of(const InspectedData& data) {
    Json json = json_of_record(data);
    if (data.values || !data.fault.empty()) json["values"] = json_of_values(data);
    return json;
}

// What an index knows, beside what any data set has.
void add_field(const Field& field, const FieldLayout& layout, Json& json) {
    json["shape"] = field.shape;
    json["axes"] = axes_text(field);
    json["storage"] = layout.is_chunked ? "chunks" : "contiguous";
    json["blocks"] = layout.blocks;
    json["block_bytes"] = layout.block_bytes;
    json["raw_bytes"] = layout.raw_bytes;
    json["stored_bytes"] = layout.stored_bytes;
    json["mean"] = field.mean;
    json["std"] = field.std;
    json["columns"] = field.columns;
}

void add_index(const DatasetIndex& index, Json& json) {
    json["name"] = index.name();
    json["split"] = index.split();
    json["digest"] = index.digest();
    json["row_order"] = index.manifest().row_order;
    json["codec"] = codec_name(index.manifest().codec);
    json["samples"] = index.samples();
    json["block_rows"] = index.manifest().block_rows;
    json["shards"] = index.shards().size();
    json["warnings"] = index.warnings();
}

constexpr std::size_t most_lines = 20;

using Text = std::back_insert_iterator<std::string>;

// Parts of a line with two spaces between them; what goes beyond `columns` goes on in further
// lines, four spaces further in.
std::string wrapped(const std::vector<std::string>& parts,
                    std::size_t indent,
                    std::size_t columns) {
    std::string text, line(indent, ' ');
    bool is_begun = false;
    for (const std::string& part : parts) {
        if (part.empty()) continue;
        if (is_begun && line.size() + 2 + part.size() > columns) {
            text += line + "\n";
            line = std::string(indent + 4, ' ');
            is_begun = false;
        }
        line += (is_begun ? "  " : "") + part;
        is_begun = true;
    }
    return text + line + "\n";
}

std::vector<std::string> groups_of(const std::string& name) {
    std::vector<std::string> groups;
    for (const std::string& part : split(name, '/'))
        if (!part.empty()) groups.push_back(part);
    if (!groups.empty()) groups.pop_back();
    return groups;
}

// The groups of `name`, "a/b/" of "/a/b/x", that `before` is not in, each as a line; and how deep
// the data set itself is.
std::pair<std::string, std::size_t> group_lines(const std::string& name,
                                                const std::string& before) {
    const std::vector<std::string> groups = groups_of(name), earlier = groups_of(before);
    const auto common = std::ranges::mismatch(groups, earlier).in1 - groups.begin();
    std::string text;
    for (auto depth = static_cast<std::size_t>(common); depth < groups.size(); ++depth)
        text += std::string(2 * depth, ' ') + printable(groups[depth]) + "/\n";
    return {text, groups.size()};
}

void describe_head(const DatasetIndex& index, Text out) {
    const Manifest& manifest = index.manifest();
    std::uint64_t bytes = 0;
    for (const Shard& shard : index.shards()) bytes += shard.bytes;
    const std::uint64_t raw = index.samples() * manifest.bytes_per_sample();
    const std::string split =
        index.split().empty() ? "" : fmt::format(" ({})", printable(index.split()));
    fmt::format_to(out, "data set   {}{}\n", printable(index.name()), split);
    fmt::format_to(out, "folder     {}\n", printable(index.path().string()));
    fmt::format_to(out,
                   "samples    {} in {} blocks of {} rows\n",
                   grouped(index.samples()),
                   grouped(index.blocks().size()),
                   grouped(manifest.block_rows));
    fmt::format_to(out,
                   "size       {} in {} shard{} ({} of samples, {:.2f}x, codec {})\n",
                   bytes_text(bytes),
                   index.shards().size(),
                   index.shards().size() == 1 ? "" : "s",
                   bytes_text(raw),
                   static_cast<double>(raw) / static_cast<double>(bytes),
                   codec_name(manifest.codec));
    fmt::format_to(out, "row order  {}\n", printable(manifest.row_order));
    fmt::format_to(out, "digest     {}\n", index.digest());
    fmt::format_to(out, "uuid       {}\n\n", printable(index.uuid()));
}

std::string rows_text(std::uint64_t rows, std::uint64_t of) {
    if (rows == of) return fmt::format("{} rows", grouped(of));
    return fmt::format("{} of {} rows", grouped(rows), grouped(of));
}

std::string values_text(const InspectedData& data) {
    if (!data.obstacle.empty()) return "not streamed: " + printable(data.obstacle);
    if (!data.values) return printable(data.fault);
    const std::string range = range_text(*data.values);
    if (data.rows_read == data.size[0]) return range;
    return range + " in " + rows_text(data.rows_read, data.size[0]);
}

std::string blocks_text(const FieldLayout& layout) {
    return fmt::format("{}, {} {} of {}, {:.2f}x",
                       layout.is_chunked ? "chunks" : "contiguous",
                       grouped(layout.blocks),
                       layout.blocks == 1 ? "block" : "blocks",
                       bytes_text(layout.block_bytes),
                       layout.ratio());
}

void describe_tree(const Inspection& all, std::size_t columns, Text out) {
    std::string before;
    for (std::size_t i = 0; i < all.all.size(); ++i) {
        const InspectedData& data = all.all[i];
        std::vector<std::string> sizes;
        for (const std::uint64_t size : data.size) sizes.push_back(grouped(size));
        const auto [groups, depth] = group_lines(data.name, before);
        const std::vector<std::string> parts{
            printable(data.name.substr(data.name.rfind('/') + 1)),
            data.type.empty()
                ? ""  // the library does not open it
                : fmt::format("{} [{}]", printable(data.type), fmt::join(sizes, ", ")),
            all.is_of_fields() ? blocks_text(all.layout.fields[i]) : data.storage,
            values_text(data)};
        fmt::format_to(out, "{}{}", groups, wrapped(parts, 2 * depth, columns));
        before = data.name;
    }
    if (all.all.empty()) fmt::format_to(out, "it has no data sets\n");
    if (all.is_cut_off) fmt::format_to(out, "... and maybe more: these are the first\n");
}

void describe_others(const OtherFiles& others, Text out) {
    if (others.opened == 0) return;
    fmt::format_to(
        out,
        "{} more {}{}: {}\n",
        grouped(others.files),
        others.files == 1 ? "file" : "files",
        others.opened < others.files ? fmt::format(", of which {} were opened", others.opened) : "",
        others.fault.empty() ? "their data sets fit the first file's" : printable(others.fault));
}

// Returns the text of a channel with its own mean.
std::string channel_text(const Field& field, std::size_t number) {
    if (number < field.columns.size()) return printable(field.columns[number]);
    return fmt::format("{} {}", field.shape.size() == 1 ? "column" : "channel", number);
}

void describe_channels(const DatasetIndex& index, Text out) {
    for (const Field& field : index.fields())
        if (const std::string axes = axes_text(field); !axes.empty())
            fmt::format_to(out, "\n{}: {}\n", field.name, axes);
    for (const Field& field : index.fields())
        for (std::size_t c = 0; c < std::min(field.mean.size(), most_lines); ++c)
            fmt::format_to(out,
                           "{}{} of {}: mean {:.6g}, deviation {:.6g}{}\n",
                           c == 0 ? "\n" : "",
                           channel_text(field, c),
                           field.name,
                           field.mean[c],
                           field.std[c],
                           field.type == ElementType::u8 ? " (of value / 255)" : "");
}

// A number for each of 256 bytes or 50,000 words is no help.
void describe_vocabulary(const InspectedData& data, Text out) {
    const auto unused = std::ranges::count(data.class_counts, 0u);
    fmt::format_to(out,
                   "\nvocabulary of {}: {}, of which {} occur\n",
                   data.name,
                   grouped(data.class_counts.size()),
                   grouped(data.class_counts.size() - static_cast<std::uint64_t>(unused)));
}

std::string class_text(const InspectedData& data, std::size_t number) {
    if (number >= data.class_names.size()) return std::to_string(number);
    const std::string name = printable(data.class_names[number]);
    return data.are_classes_numbered ? fmt::format("{} {}", number, name) : name;
}

// A bar for each class.
void describe_classes(const InspectedData& data, std::size_t columns, Text out) {
    constexpr std::size_t most_bar = 40, most_name = 24;
    if (data.class_counts.empty()) return;
    if (data.name == "tokens") return describe_vocabulary(data, out);
    const std::size_t shown = std::min(data.class_counts.size(), most_lines);
    std::vector<std::string> names, counts;
    std::size_t name_width = 1, count_width = 1;
    for (std::size_t i = 0; i < shown; ++i) {
        names.push_back(class_text(data, i));
        counts.push_back(grouped(data.class_counts[i]));
        name_width = std::clamp(names[i].size(), name_width, most_name);
        count_width = std::max(count_width, counts[i].size());
    }
    const std::size_t taken = name_width + count_width + 6;
    const std::size_t bar =
        std::clamp<std::size_t>(columns > taken ? columns - taken : 1, 1, most_bar);
    const std::uint64_t largest = std::max<std::uint64_t>(std::ranges::max(data.class_counts), 1);
    fmt::format_to(out,
                   "\n{}: {} classes in {}\n",
                   printable(data.name),
                   grouped(data.class_counts.size()),
                   rows_text(data.classes_in_rows,
                             data.are_classes_numbered ? data.classes_in_rows : data.size[0]));
    for (std::size_t i = 0; i < shown; ++i)
        fmt::format_to(out,
                       "  {:<{}}  {:>{}}  {}\n",
                       names[i],
                       name_width,
                       counts[i],
                       count_width,
                       std::string((data.class_counts[i] * bar + largest - 1) / largest, '#'));
    if (shown < data.class_counts.size())
        fmt::format_to(out, "  and {} more\n", grouped(data.class_counts.size() - shown));
}

void describe_shards(const DatasetIndex& index, Text out) {
    fmt::format_to(out, "\n{:<44} {:>12} {:>12}\n", "shard", "samples", "size");
    const std::size_t shown = std::min(index.shards().size(), most_lines);
    for (const Shard& shard : std::span(index.shards()).first(shown))
        fmt::format_to(out,
                       "{:<44} {:>12} {:>12}\n",
                       printable(shard.name),
                       grouped(shard.samples),
                       bytes_text(shard.bytes));
    if (shown < index.shards().size())
        fmt::format_to(out, "and {} more\n", index.shards().size() - shown);
}

void describe_fit(const JobFit& fit, Text out) {
    const JobShape& job = fit.job;
    const auto line = [&](const char* what, const std::string& needs, const std::string& gives) {
        fmt::format_to(out, "{:<22} {:<28} {}\n", what, needs, gives);
    };
    fmt::format_to(out, "\n");
    line(fmt::format("{} ranks", job.ranks).c_str(), "need", "this layout gives");
    line("lanes", fmt::format("{}", job.lanes), fmt::format("{}", fit.lanes));
    line("ranks : lanes : batch",
         "each divides the next",
         fmt::format("{} : {} : {}{}",
                     job.ranks,
                     fit.lanes,
                     job.batch,
                     fit.lanes_divide_evenly ? "" : ", uneven"));
    line("bytes read per epoch",
         "1.00x the data set",
         fmt::format("{:.2f}x", fit.read_amplification));
    line("windows of a rank",
         fmt::format("{} lanes of {}", fit.lanes_of_rank, bytes_text(fit.window_bytes)),
         fmt::format("{} of memory", bytes_text(fit.rank_bytes)));
    line("shards",
         fmt::format("{} node{}", job.nodes, job.nodes == 1 ? "" : "s"),
         fit.shards_suffice ? "enough" : "too few");
    line("all of it in memory",
         bytes_text(fit.resident_bytes),
         job.node_memory_bytes == 0 ? "not known"
                                    : fmt::format("{} in {}",
                                                  fit.fits_in_memory ? "fits" : "does not fit",
                                                  bytes_text(job.node_memory_bytes)));
}

void describe_layout(const LayoutReport& layout, Text out) {
    for (const LabelMix& mix : layout.labels)
        fmt::format_to(
            out,
            "\n{}: {:.2f} bits of class in a block, {:.2f} in the whole (mixing {:.2f})\n",
            mix.field,
            mix.block_bits,
            mix.whole_bits,
            mix.mixing());
    if (layout.fit) describe_fit(*layout.fit, out);
    for (const std::string& advice : layout.advice)
        fmt::format_to(out, "\nadvice: {}\n", printable(advice));
}

void describe_training(const TrainCommand& train, Text out) {
    if (!train.line.empty())
        fmt::format_to(out, "\ntrain on it:\n  {}\n", printable(train.line));
    else
        fmt::format_to(out, "\nno command to train on it: {}\n", printable(train.obstacle));
    if (!train.fix.empty())
        fmt::format_to(out, "  {}{}\n", train.line.empty() ? "fix: " : "", printable(train.fix));
}

}  // namespace

std::string inspection_text(const Inspection& all, std::size_t columns) {
    std::string text;
    const Text out(text);
    if (all.is_of_fields())
        describe_head(*all.index, out);
    else
        fmt::format_to(out, "{}\n", printable(all.title));
    describe_tree(all, columns, out);
    describe_others(all.others, out);
    if (all.is_of_fields()) describe_channels(*all.index, out);
    for (const InspectedData& data : all.all) describe_classes(data, columns, out);
    if (all.is_of_fields()) describe_shards(*all.index, out);
    describe_layout(all.layout, out);
    if (all.sheet)
        fmt::format_to(out,
                       "\n{}: {} of {} images\n",
                       printable(all.sheet->path.string()),
                       grouped(all.sheet->images),
                       grouped(all.sheet->of));
    describe_training(all.train, out);
    return text;
}

std::string inspection_json(const Inspection& all) {
    Json json{{"place", all.is_of_fields() ? all.data.string() : all.title},
              {"fields", Json::array()},
              {"may_have_more", all.is_cut_off},
              {"other_files", json_of_record(all.others)},
              {"labels", Json::array()},
              {"advice", all.layout.advice},
              {"train", all.train.line},
              {"no_train", all.train.obstacle},
              {"no_train_fix", all.train.fix}};
    for (const InspectedData& data : all.all) json["fields"].push_back(json_of(data));
    if (all.is_of_fields()) {
        add_index(*all.index, json);
        for (std::size_t f = 0; f < all.all.size(); ++f)
            add_field(all.index->fields()[f], all.layout.fields[f], json["fields"][f]);
    }
    for (const LabelMix& mix : all.layout.labels)
        json["labels"].push_back({{"field", mix.field},
                                  {"whole_bits", mix.whole_bits},
                                  {"block_bits", mix.block_bits},
                                  {"mixing", mix.mixing()},
                                  {"blocks_read", mix.blocks}});
    if (all.layout.fit) json["job"] = json_of_record(*all.layout.fit);
    if (all.sheet)
        json["sheet"] = {{"path", all.sheet->path.string()},
                         {"images", all.sheet->images},
                         {"of", all.sheet->of}};
    return json.dump(2) + "\n";
}

}  // namespace lockstep
