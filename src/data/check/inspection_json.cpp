// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"
#include "lockstep/data/axes.hpp"

#include "inspection.hpp"

namespace lockstep {
namespace {

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
    Json json{{"name", data.name},
              {"type", data.type},
              {"size", data.size},
              {"storage", data.storage},
              {"obstacle", data.obstacle},
              {"class_counts", data.class_counts},
              {"class_names", data.class_names},
              {"classes_in_rows", data.classes_in_rows}};
    if (data.values || !data.fault.empty()) json["values"] = json_of_values(data);
    return json;
}

// Adds the facts of an index, besides those of any data set.
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

}  // namespace

std::string inspection_json(const Inspection& all) {
    Json json{
        {"place", all.is_of_fields() ? all.data.string() : all.title},
        {"fields", Json::array()},
        {"may_have_more", all.is_cut_off},
        {"other_files",
         {{"files", all.others.files}, {"opened", all.others.opened}, {"fault", all.others.fault}}},
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
    if (all.layout.fit) json["job"] = json_of(*all.layout.fit);
    if (all.sheet)
        json["sheet"] = {{"path", all.sheet->path.string()},
                         {"images", all.sheet->images},
                         {"of", all.sheet->of}};
    return json.dump(2) + "\n";
}

}  // namespace lockstep
