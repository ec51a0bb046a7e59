// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/ranks_text.hpp"
#include "lockstep/core/record.hpp"
#include "lockstep/plan/contract.hpp"
#include "lockstep/plan/model_table.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::size_t most_shown = 4;  // limit of groups, and of variables

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

// Returns the remedy for a user.
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
