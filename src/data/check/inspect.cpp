// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/inspect.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/axes.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_lines = 20;

using Text = std::back_insert_iterator<std::string>;

std::string shape_text(const Field& field) {
    if (field.shape.empty()) return "scalar";
    return fmt::format("[{}]", fmt::join(field.shape, ", "));
}

std::uint64_t stored_bytes(const DatasetIndex& index, std::size_t field) {
    std::uint64_t bytes = 0;
    for (const StoredBlock& block : index.stored_blocks(field)) bytes += block.stored_bytes;
    return bytes;
}

std::string ratio_text(std::uint64_t raw, std::uint64_t stored) {
    return fmt::format("{:.2f}x", static_cast<double>(raw) / static_cast<double>(stored));
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
                   "size       {} in {} shard{} ({} of samples, {}, codec {})\n",
                   bytes_text(bytes),
                   index.shards().size(),
                   index.shards().size() == 1 ? "" : "s",
                   bytes_text(raw),
                   ratio_text(raw, bytes),
                   codec_name(manifest.codec));
    fmt::format_to(out, "row order  {}\n", printable(manifest.row_order));
    fmt::format_to(out, "digest     {}\n", index.digest());
    fmt::format_to(out, "uuid       {}\n", printable(index.uuid()));
}

// What has a mean of its own.
std::string channel_text(const Field& field, std::size_t number) {
    if (number < field.columns.size()) return printable(field.columns[number]);
    return fmt::format("{} {}", field.shape.size() == 1 ? "column" : "channel", number);
}

void describe_fields(const DatasetIndex& index, Text out) {
    fmt::format_to(out,
                   "\n{:<12} {:<5} {:<16} {:>12} {:>12} {:>7}\n",
                   "field",
                   "type",
                   "shape",
                   "raw",
                   "stored",
                   "ratio");
    for (std::size_t f = 0; f < index.fields().size(); ++f) {
        const Field& field = index.fields()[f];
        const std::uint64_t raw = index.samples() * field.bytes_per_sample();
        const std::uint64_t stored = stored_bytes(index, f);
        fmt::format_to(out,
                       "{:<12} {:<5} {:<16} {:>12} {:>12} {:>7}\n",
                       field.name,
                       element_name(field.type),
                       shape_text(field),
                       bytes_text(raw),
                       bytes_text(stored),
                       ratio_text(raw, stored));
    }
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
void describe_vocabulary(const Field& field, Text out) {
    const auto unused = std::ranges::count(field.class_counts, 0u);
    fmt::format_to(out,
                   "\nvocabulary of {}: {}, of which {} occur\n",
                   field.name,
                   grouped(field.class_counts.size()),
                   grouped(field.class_counts.size() - static_cast<std::uint64_t>(unused)));
}

void describe_classes(const Field& field, Text out) {
    if (field.class_counts.empty()) return;
    if (field.name == "tokens") return describe_vocabulary(field, out);
    fmt::format_to(out,
                   "\n{:<24} {:>12}\n",
                   fmt::format("class of {}", field.name),
                   field.shape.empty() ? "samples" : "pixels");
    const std::size_t shown = std::min(field.class_counts.size(), most_lines);
    for (std::size_t c = 0; c < shown; ++c) {
        const std::string name =
            c < field.class_names.size() ? printable(field.class_names[c]) : "";
        fmt::format_to(
            out, "{:<24} {:>12}\n", fmt::format("{} {}", c, name), grouped(field.class_counts[c]));
    }
    if (shown < field.class_counts.size())
        fmt::format_to(out, "and {} more\n", field.class_counts.size() - shown);
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

}  // namespace

std::string describe_dataset(const DatasetIndex& index) {
    std::string text;
    const Text out(text);
    describe_head(index, out);
    describe_fields(index, out);
    for (const Field& field : index.fields()) describe_classes(field, out);
    describe_shards(index, out);
    return text;
}

}  // namespace lockstep
