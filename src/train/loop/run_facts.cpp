// SPDX-License-Identifier: Apache-2.0
#include "loop/run_facts.hpp"

#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/observe/tensorboard.hpp"

#include "model/model_source.hpp"
#include "replica/numerics.hpp"
#include "settings/setting_effects.hpp"

#include <algorithm>
#include <utility>

#include <torch/version.h>

namespace lockstep {
namespace {

Json numeric_contract(const TrainSettings& settings, const BitContract& contract) {
    return {{"virtual_ranks", settings.virtual_ranks},
            {"threads", settings.threads},
            {"instruction_set", instruction_set_name(*settings.instruction_set)},
            {"seed", settings.seed},
            {"order", order_name(settings.order)},
            {"transform", settings.transform},
            {"canary", contract.canary},
            {"processor", contract.processor}};
}

Json versions() {
    return {{"lockstep", version_text()},
            {"libtorch", TORCH_VERSION},
            {"mpi", MpiSession::library_version()}};
}

Json given_config(const TrainSettings& settings) {
    Json config = Json::object();
    for (const auto& [key, entry] : settings.origins)
        config[key] = {{"value", config_text(entry.value)}, {"origin", entry.origin}};
    return config;
}

// A run that an earlier version made has the defaults of settings that came later.
void leave_out_unknown(Json& deciding, const Json& recorded, const std::vector<std::string>& idle) {
    TrainSettings then;
    then.optimizer.decays_all = decayed_all(recorded);
    Json defaults = json_of(deciding_settings(then));
    defaults["task"] = "classification";  // there was no other
    defaults["device"] = "cpu";           // likewise
    for (const auto& [name, value] : defaults.items()) {
        if (recorded.contains(name) || !deciding.contains(name)) continue;
        if (deciding[name] == value || std::ranges::count(idle, name) > 0) deciding.erase(name);
    }
}

}  // namespace

Json json_of(const std::vector<NamedValue>& values) {
    Json json = Json::object();
    for (const NamedValue& named : values)
        json[named.name] = std::visit([](const auto& value) { return Json(value); }, named.value);
    return json;
}

Json origins_of(const TrainSettings& settings) {
    Json origins = Json::object();
    for (const auto& [key, entry] : settings.origins) origins[key] = entry.origin;
    return origins;
}

std::string settings_text(const TrainSettings& settings) {
    TrainSettings shown = settings;
    std::vector<std::pair<std::string, std::string>> rows;
    for (const NamedValue& named : current_values(setting_table(shown)))
        rows.emplace_back(named.name, config_text(named.value));
    return markdown_table("setting", "value", rows);
}

bool decayed_all(const Json& recorded) {
    return !recorded.contains("decay-all") && recorded.value("optimizer", Json()) == "adamw" &&
           recorded.value("weight-decay", 0.0) > 0;
}

Json deciding_facts(const TrainSettings& settings, const Json& digests, const Json& recorded) {
    Json deciding = digests;
    deciding.update(json_of(deciding_settings(settings)));
    if (source_of(settings.model.name) != ModelSource::registered)  // wherever it lies
        deciding["model"] = std::filesystem::path(settings.model.name).filename().string();
    deciding["libtorch"] = TORCH_VERSION;
    for (const std::string& idle : idle_settings(settings))
        if (deciding.contains(idle) && recorded.contains(idle)) deciding[idle] = recorded[idle];
    if (!recorded.empty()) leave_out_unknown(deciding, recorded, idle_settings(settings));
    return deciding;
}

RunRecord run_facts(const TrainSettings& settings, const BitContract& contract) {
    return {.config = given_config(settings),
            .deciding = contract.deciding,
            .contract = numeric_contract(settings, contract),
            .versions = versions()};
}

}  // namespace lockstep
