// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/contract.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/plan/model_table.hpp"
#include "lockstep/plan/settings.hpp"
#include "lockstep/run/run_directory.hpp"
#include "lockstep/run/safetensors.hpp"
#include "lockstep/run/tensorboard.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

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

constexpr std::size_t most_shown = 4;  // of groups, and of variables

/// Ranks that computed the same.
struct Flock {
    std::vector<int> ranks;
    const Canary* first = nullptr;
    std::set<std::string> places;  ///< "node (processor)"
};

std::vector<Flock> flocks_of(const std::vector<Canary>& all) {
    std::vector<Flock> flocks;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
        const auto same = [&](const Flock& flock) { return flock.first->hash == all[rank].hash; };
        auto found = std::ranges::find_if(flocks, same);
        if (found == flocks.end()) found = flocks.insert(found, {.first = &all[rank]});
        found->ranks.push_back(static_cast<int>(rank));
        found->places.insert(fmt::format("{} ({})", all[rank].host, all[rank].processor));
    }
    return flocks;
}

std::string flock_text(const Flock& flock) {
    const std::size_t places = flock.places.size();
    return fmt::format("{} on {}{}",
                       ranks_text(flock.ranks),
                       *flock.places.begin(),
                       places > 1 ? fmt::format(" and {} more nodes", places - 1) : "");
}

std::string value_text(const Canary& canary, const std::string& name) {
    const auto found = canary.variables.find(name);
    return found == canary.variables.end() ? "not set" : "'" + found->second + "'";
}

// Variables that the first ranks of two flocks do not have alike.
std::string variables_text(const Flock& one, const Flock& other) {
    std::set<std::string> names;
    for (const Flock* flock : {&one, &other})
        for (const auto& [name, value] : flock->first->variables) names.insert(name);
    std::vector<std::string> found;
    for (const std::string& name : names)
        if (value_text(*one.first, name) != value_text(*other.first, name) &&
            found.size() < most_shown)
            found.push_back(fmt::format("{} is {} on rank {} and {} on rank {}",
                                        name,
                                        value_text(*one.first, name),
                                        one.ranks.front(),
                                        value_text(*other.first, name),
                                        other.ranks.front()));
    return found.empty() ? "" : fmt::format("; {}", fmt::join(found, "; "));
}

bool have_same_processor(const std::vector<Flock>& flocks) {
    return std::ranges::all_of(flocks, [&](const Flock& flock) {
        return flock.first->processor == flocks[0].first->processor;
    });
}

// What a user is to do about it.
std::string fix_of(const std::vector<Flock>& flocks, ModelAuthor author) {
    const std::string same_nodes =
        "use nodes with the same processor (sbatch --constraint), and give all ranks the same "
        "environment and libraries";
    if (author == ModelAuthor::lockstep) return same_nodes;
    return have_same_processor(flocks) ? std::string(stateful_fix)
                                       : same_nodes + "; or " + stateful_fix;
}

Error other_bits(const std::vector<Flock>& flocks, ModelAuthor author) {
    const bool is_models = author != ModelAuthor::lockstep && have_same_processor(flocks);
    std::vector<std::string> texts, hashes;
    for (const Flock& flock : flocks) {
        if (texts.size() == most_shown) break;
        texts.push_back(flock_text(flock));
        hashes.push_back(flock.first->hash.substr(0, 8));
    }
    return Error("E707",
                 fmt::format("ranks compute {} different results from the same samples: {}",
                             flocks.size(),
                             fmt::join(texts, "; ")),
                 fmt::format("{}a step before the run gave {}{}",
                             is_models ? std::string(stateful_why) + "; " : "",
                             fmt::join(hashes, " and "),
                             variables_text(flocks[0], flocks[1])),
                 fix_of(flocks, author));
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

void describe(Record& record, Canary& canary) {
    record.field("hash", canary.hash);
    record.field("host", canary.host);
    record.field("processor", canary.processor);
    record.field("variables", canary.variables);
}

Canary make_canary(const std::string& hash,
                   const std::string& host,
                   const std::string& processor,
                   const Environment& environment) {
    Canary canary{.hash = hash, .host = host, .processor = processor, .variables = {}};
    for (const char* prefix : {"ATEN_",
                               "CUBLAS_",
                               "CUDA_",
                               "CUDNN_",
                               "NVIDIA_",
                               "DNNL_",
                               "GLIBC_",
                               "GOMP_",
                               "KMP_",
                               "LD_",
                               "MKL_",
                               "OMP_",
                               "ONEDNN_",
                               "TORCH_"})
        for (const std::string& name : environment.names_with_prefix(prefix))
            canary.variables[name] = environment.text(name).value_or("");
    return canary;
}

void check_same_canary(const Communicator& ranks, const Canary& mine, ModelAuthor author) {
    std::vector<Canary> all;
    for (const std::string& text : ranks.all_gather(json_of_record(mine).dump()))
        all.push_back(record_from_json<Canary>(parse_json(text, "canary"), "canary"));
    const std::vector<Flock> flocks = flocks_of(all);
    agree(ranks, [&] { check(flocks.size() == 1, [&] { return other_bits(flocks, author); }); });
}

}  // namespace lockstep
