// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/data/axes.hpp"
#include "lockstep/data/inspect.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

namespace lockstep {
namespace {

using Text = std::back_insert_iterator<std::string>;

void describe_layouts(const Inspection& all, Text out) {
    fmt::format_to(
        out, "\n{:<20} {:<12} {:>10} {:>12} {:>8}\n", "layout", "storage", "blocks", "of", "ratio");
    for (const FieldLayout& layout : all.layouts)
        fmt::format_to(out,
                       "{:<20} {:<12} {:>10} {:>12} {:>7.2f}x\n",
                       layout.field,
                       layout.is_chunked ? "chunks" : "contiguous",
                       grouped(layout.blocks),
                       bytes_text(layout.block_bytes),
                       layout.ratio());
    for (const LabelMix& mix : all.labels)
        fmt::format_to(
            out,
            "\n{}: {:.2f} bits of class in a block, {:.2f} in the whole (mixing {:.2f})\n",
            mix.field,
            mix.block_bits,
            mix.whole_bits,
            mix.mixing());
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

Json json_of(const JobFit& fit) {
    return {{"ranks", fit.job.ranks},
            {"nodes", fit.job.nodes},
            {"batch", fit.job.batch},
            {"lanes", fit.lanes},
            {"lanes_of_rank", fit.lanes_of_rank},
            {"window_bytes", fit.window_bytes},
            {"rank_bytes", fit.rank_bytes},
            {"read_amplification", fit.read_amplification},
            {"lanes_divide_evenly", fit.lanes_divide_evenly},
            {"shards_suffice", fit.shards_suffice},
            {"resident_bytes", fit.resident_bytes},
            {"node_memory_bytes", fit.job.node_memory_bytes},
            {"fits_in_memory", fit.fits_in_memory}};
}

}  // namespace

std::string describe_inspection(const Inspection& inspection) {
    std::string text;
    const Text out(text);
    describe_layouts(inspection, out);
    if (inspection.fit) describe_fit(*inspection.fit, out);
    for (const std::string& advice : inspection.advice)
        fmt::format_to(out, "\nadvice: {}\n", printable(advice));
    return text;
}

std::string inspection_json(const DatasetIndex& index, const Inspection& inspection) {
    const Manifest& manifest = index.manifest();
    Json json{{"name", index.name()},
              {"split", index.split()},
              {"digest", index.digest()},
              {"row_order", manifest.row_order},
              {"codec", codec_name(manifest.codec)},
              {"samples", index.samples()},
              {"block_rows", manifest.block_rows},
              {"shards", index.shards().size()},
              {"fields", Json::array()},
              {"labels", Json::array()},
              {"advice", inspection.advice},
              {"warnings", index.warnings()}};
    for (std::size_t f = 0; f < inspection.layouts.size(); ++f) {
        const FieldLayout& layout = inspection.layouts[f];
        const Field& field = index.fields()[f];
        json["fields"].push_back({{"name", field.name},
                                  {"type", element_name(field.type)},
                                  {"shape", field.shape},
                                  {"axes", axes_text(field)},
                                  {"storage", layout.is_chunked ? "chunks" : "contiguous"},
                                  {"blocks", layout.blocks},
                                  {"block_bytes", layout.block_bytes},
                                  {"raw_bytes", layout.raw_bytes},
                                  {"stored_bytes", layout.stored_bytes},
                                  {"mean", field.mean},
                                  {"std", field.std},
                                  {"columns", field.columns},
                                  {"class_counts", field.class_counts},
                                  {"class_names", field.class_names}});
    }
    for (const LabelMix& mix : inspection.labels)
        json["labels"].push_back({{"field", mix.field},
                                  {"whole_bits", mix.whole_bits},
                                  {"block_bits", mix.block_bits},
                                  {"mixing", mix.mixing()},
                                  {"blocks_read", mix.blocks}});
    if (inspection.fit) json["job"] = json_of(*inspection.fit);
    return json.dump(2) + "\n";
}

}  // namespace lockstep
