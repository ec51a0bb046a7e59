// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/json.hpp"

#include "seen.hpp"

namespace lockstep {
namespace {

Json json_of(const SeenValues& values) {
    if (!values.fault.empty()) return {{"fault", values.fault}};
    Json json{{"rows_read", values.rows},
              {"finite", values.summary.count},
              {"not_finite", values.summary.not_finite}};
    if (values.summary.count == 0) return json;
    json["least"] = values.summary.least;
    json["most"] = values.summary.most;
    json["mean"] = values.summary.mean;
    return json;
}

Json json_of(const LookedAt& data, const std::optional<SeenValues>& values) {
    Json json{{"name", data.name},
              {"type", data.type},
              {"size", data.size},
              {"storage", data.storage},
              {"obstacle", data.obstacle}};
    if (!values) return json;
    json["values"] = json_of(*values);
    if (values->classes.empty()) return json;
    json["classes"] = Json::array();
    for (const ClassCount& each : values->classes)
        json["classes"].push_back({{"name", each.name}, {"count", each.count}});
    json["classes_in_rows"] = values->counted_rows;
    return json;
}

}  // namespace

std::string json_text(const Seen& seen) {
    const OtherFiles& others = seen.place.others;
    Json json{{"place", seen.place.title},
              {"datasets", Json::array()},
              {"may_have_more", seen.place.is_cut_off},
              {"other_files",
               {{"files", others.files},
                {"compared", others.compared},
                {"alike", others.alike},
                {"difference", others.difference}}},
              {"train", seen.train.line},
              {"no_train", seen.train.obstacle}};
    for (std::size_t i = 0; i < seen.place.all.size(); ++i)
        json["datasets"].push_back(json_of(seen.place.all[i], seen.values[i]));
    if (seen.sheet)
        json["sheet"] = {{"path", seen.sheet->path.string()},
                         {"images", seen.sheet->images},
                         {"of", seen.sheet->of}};
    return json.dump(2) + "\n";
}

}  // namespace lockstep
