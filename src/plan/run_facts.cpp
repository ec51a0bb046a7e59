// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/safetensors.hpp"
#include "lockstep/run/tensorboard.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

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

Json versions(const std::string& libtorch) {
    return {{"lockstep", version_text()},
            {"libtorch", libtorch},
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

// All ranks but the first compare theirs with its own.
std::string agreed_digest(const Communicator& ranks, const std::filesystem::path& path) {
    const std::string mine = agree(ranks, [&] { return file_digest(path); });
    const std::string root = ranks.broadcast(mine);
    agree(ranks, [&] {
        check(mine == root, [&] {
            return Error("E605",
                         fmt::format("ranks have different models: '{}' is another file here than "
                                     "on rank 0",
                                     path.string()),
                         fmt::format("its hash is {} here and {} there", mine, root),
                         "give all nodes the same file");
        });
    });
    return root;
}

// They were settled after they had been given.
constexpr std::array settled{"device", "isa", "task", "virtual-ranks"};

std::string text_of(const Json& value) {
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// Returns the value as given, because the deciding value of a file is not its path.
std::optional<std::string> recorded_text(const RunRecord& record, const std::string& name) {
    const bool is_settled = std::ranges::find(settled, name) != settled.end();
    if (!is_settled && record.config.contains(name))
        return text_of(record.config.at(name).value("value", Json("")));
    if (record.deciding.contains(name)) return text_of(record.deciding.at(name));
    return std::nullopt;
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

Json deciding_facts(const TrainSettings& settings,
                    const Json& digests,
                    const std::string& libtorch,
                    const Json& recorded) {
    Json deciding = digests;
    deciding.update(json_of(deciding_settings(settings)));
    if (source_of(settings.model.name) != ModelSource::registered)  // wherever it lies
        deciding["model"] = std::filesystem::path(settings.model.name).filename().string();
    deciding["libtorch"] = libtorch;
    for (const std::string& idle : idle_settings(settings))
        if (deciding.contains(idle) && recorded.contains(idle)) deciding[idle] = recorded[idle];
    if (!recorded.empty()) leave_out_unknown(deciding, recorded, idle_settings(settings));
    return deciding;
}

RunRecord run_facts(const TrainSettings& settings,
                    const BitContract& contract,
                    const std::string& libtorch) {
    return {.config = given_config(settings),
            .deciding = contract.deciding,
            .contract = numeric_contract(settings, contract),
            .versions = versions(libtorch)};
}

Json agreed_digests(const Communicator& ranks, const TrainSettings& settings) {
    Json digests = Json::object();
    if (source_of(settings.model.name) != ModelSource::registered)
        digests["model-digest"] = agreed_digest(ranks, settings.model.name);
    return digests;
}

RunSettings read_run_settings(const std::filesystem::path& run) {
    const RunRecord record = read_run_record(run);
    RunSettings found;
    for (const OptionSection& section : setting_table(found.settings))
        for (const Option& option : section.options)
            if (const auto text = recorded_text(record, option.name); text && !text->empty())
                set_setting(found.settings, option.name, *text);
    found.model_digest = text_of(record.deciding.value("model-digest", Json("")));
    found.data_digest = text_of(record.deciding.value("data-digest", Json("")));
    found.data_content = text_of(record.deciding.value("data-content", Json("")));
    return found;
}

}  // namespace lockstep
