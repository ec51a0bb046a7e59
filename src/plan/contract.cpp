// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/contract.hpp"

#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/hash.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/core/shell_word.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/run/tensorboard.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

// A run that an earlier version made has the defaults of settings that came later.
void leave_out_unknown(Json& deciding, const Json& recorded, const std::vector<std::string>& idle) {
    TrainSettings then;
    then.optimizer.decays_all = decayed_all(recorded);
    Json defaults = json_of(deciding_settings(then));
    defaults["task"] = "classification";  // there was no other
    defaults["device"] = "cpu";           // likewise
    defaults["precision"] = "fp32";       // as a CPU has it
    for (const auto& [name, value] : defaults.items()) {
        if (recorded.contains(name) || !deciding.contains(name)) continue;
        if (deciding[name] == value || std::ranges::count(idle, name) > 0) deciding.erase(name);
    }
}

// All ranks but the first compare theirs with its own.
std::string agreed_digest(const Communicator& ranks, const fs::path& path) {
    const std::string mine = agree(ranks, [&] { return file_digest(path); });
    const std::string root = ranks.broadcast(mine);
    agree(ranks, [&] {
        check(mine == root,
              "E605",
              fmt::format("ranks have different models: '{}' is another file here than "
                          "on rank 0",
                          path.string()),
              fmt::format("its hash is {} here and {} there", mine, root),
              "give all nodes the same file");
    });
    return root;
}

Error too_short(const TrainSettings& settings,
                const RunLength& length,
                const CheckpointState& newest) {
    const std::string given = settings.max_steps > 0
                                  ? fmt::format("--max-steps {}", settings.max_steps)
                                  : fmt::format("--epochs {}", settings.epochs);
    return Error("E106",
                 fmt::format("{} ends run '{}' at step {}, and it has done {}",
                             given,
                             settings.run.string(),
                             length.total_steps,
                             newest.step),
                 "a run does not go back",
                 fmt::format("give --max-steps {} or more, or begin another run with its weights: "
                             "lockstep train --from {} --run NEW",
                             newest.step,
                             shell_word(settings.run.string())));
}

// Where the length decides bits, they agree with `deciding`.
void take_length(const Json& deciding, std::vector<BitContract>& recorded) {
    for (BitContract& contract : recorded)
        for (const char* name : {"epochs", "max-steps"})
            if (contract.deciding.contains(name) && deciding.contains(name))
                contract.deciding[name] = deciding[name];
}

// The length by the settings of a checkpoint, if it decides bits there; else more than any.
std::int64_t steps_in(const Json& deciding, const RunLength& length) {
    const auto steps = deciding.value("max-steps", std::int64_t{0});
    const auto epochs = deciding.value("epochs", std::int64_t{0});
    if (steps > 0 || epochs == 0) return steps > 0 ? steps : most_samples;
    return epochs * length.steps_per_epoch;
}

std::string longer_text(const TrainSettings& settings, const RunLength& length, std::int64_t done) {
    TrainSettings shown = settings;
    const std::string schedule =
        config_text(find_option(setting_table(shown), "schedule").current());
    return fmt::format(
        "the run was complete after {} steps and goes on to {}: --schedule {} {}, so the learning "
        "rate is {:.4g} now{}",
        done,
        length.total_steps,
        schedule,
        has_end(settings.schedule.kind) ? "spans all of them" : "goes on",
        learning_rate(peak_rate(settings), settings.schedule, done, length),
        has_end(settings.schedule.kind)
            ? "; a run that is so long from the beginning has other rates and other bits"
            : "");
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
        deciding["model"] = fs::path(settings.model.name).filename().string();
    if (settings.normalise != "dataset" && brings_statistics(settings.normalise))
        deciding["normalise"] = "file";  // its content is a digest
    deciding["libtorch"] = libtorch;
    for (const std::string& idle : idle_settings(settings))
        if (deciding.contains(idle) && recorded.contains(idle)) deciding[idle] = recorded[idle];
    if (!recorded.empty()) leave_out_unknown(deciding, recorded, idle_settings(settings));
    return deciding;
}

std::string settle_length(const TrainSettings& settings,
                          const RunLength& length,
                          const BitContract& now,
                          std::vector<BitContract>& recorded) {
    const auto newest = newest_checkpoint_state(RunPaths{settings.run}.checkpoints());
    if (!newest) return "";
    check(length.total_steps >= newest->step, [&] { return too_short(settings, length, *newest); });
    // A run that became longer once has that in its checkpoints.
    take_length(newest->contract.deciding, recorded);
    const auto state = read_run_state(settings.run);
    // Later checkpoints than the newest may be damaged or removed.
    const bool is_marked =
        state && state->phase == RunPhase::complete && state->step == newest->step;
    const bool was_complete =
        is_marked || newest->step >= steps_in(newest->contract.deciding, length);
    if (!was_complete || length.total_steps == newest->step) return "";
    take_length(now.deciding, recorded);
    return longer_text(settings, length, newest->step);
}

RunRecord run_facts(const TrainSettings& settings,
                    const BitContract& contract,
                    const std::string& libtorch) {
    Json config = Json::object();
    for (const auto& [key, entry] : settings.origins)
        config[key] = {{"value", config_text(entry.value)}, {"origin", entry.origin}};
    return {.config = std::move(config),
            .deciding = contract.deciding,
            .contract = {{"virtual_ranks", settings.virtual_ranks},
                         {"threads", settings.threads},
                         {"instruction_set", instruction_set_name(*settings.instruction_set)},
                         {"seed", settings.seed},
                         {"order", order_name(settings.order)},
                         {"transform", settings.transform},
                         {"canary", contract.canary},
                         {"processor", contract.processor}},
            .versions = {{"lockstep", version_text()},
                         {"libtorch", libtorch},
                         {"mpi", MpiSession::library_version()}}};
}

Json agreed_digests(const Communicator& ranks, const TrainSettings& settings) {
    Json digests = Json::object();
    if (source_of(settings.model.name) != ModelSource::registered)
        digests["model-digest"] = agreed_digest(ranks, settings.model.name);
    return digests;
}

void describe(Record& record, Canary& canary) {
    LOCKSTEP_EACH(record.field, canary.hash, canary.host, canary.processor, canary.variables);
}

Canary make_canary(const std::string& hash,
                   const std::string& host,
                   const std::string& processor,
                   const Environment& environment) {
    Canary canary{.hash = hash, .host = host, .processor = processor, .variables = {}};
    constexpr std::string_view prefixes =
        "ATEN_ CUBLAS_ CUDA_ CUDNN_ NVIDIA_ DNNL_ GLIBC_ GOMP_ KMP_ LD_ MKL_ OMP_ ONEDNN_ "
        "PYTORCH_ TORCH_";
    for (const std::string& prefix : split(prefixes, ' '))
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
