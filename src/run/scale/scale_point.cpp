// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/comparison.hpp"
#include "lockstep/run/scaling.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Settings whose values change the amount of work of a step, or the way in which it is done.
constexpr auto work_settings = std::to_array<std::string_view>({"model",
                                                                "data-digest",
                                                                "batch",
                                                                "task",
                                                                "inputs",
                                                                "device",
                                                                "channels",
                                                                "no-bias",
                                                                "layers",
                                                                "heads",
                                                                "width",
                                                                "optimizer",
                                                                "threads",
                                                                "isa",
                                                                "precision",
                                                                "micro-batches",
                                                                "transform",
                                                                "split",
                                                                "plain"});

bool is_work(std::string_view setting) {
    return std::ranges::find(work_settings, setting) != work_settings.end();
}

// Cores' worth of time that the ranks of one node have together.
struct NodeRoom {
    double cores = 0;
    double most = std::numeric_limits<double>::infinity();  ///< limit of its control group
};

int threads_of(const RunRecord& record) {
    const Json* const threads = record.contract.find("threads");
    return threads && threads->is_number_integer()
               ? std::max(1, static_cast<int>(threads->get<std::int64_t>()))
               : 1;
}

// Ranks whose cores nobody recorded have each their own, and so have those that compute on GPUs.
double room_of(const RunFigures& run) {
    constexpr double no_bound = std::numeric_limits<double>::infinity();
    if (run.record.deciding.value("device", "cpu") != "cpu") return no_bound;
    std::map<std::string, NodeRoom> nodes;
    for (const RankFigures& rank : run.ranks) {
        if (!rank.place) return no_bound;
        NodeRoom& node = nodes[rank.facts.host];
        node.cores += static_cast<double>(rank.place->cores) / std::max(1, rank.place->sharers);
        if (rank.place->quota) node.most = std::min(node.most, *rank.place->quota);
    }
    double cores = 0;
    for (const auto& [host, node] : nodes) cores += std::min(node.cores, node.most);
    return std::max(1.0, cores / threads_of(run.record));
}

std::string value_text(const RunFigures& run, const std::string& name) {
    const Json* const value = run.record.deciding.find(name);
    return value ? value->dump() : "not recorded";
}

// Names with other values in `run` than in `first`.
std::vector<std::string> differing(const RunFigures& first, const RunFigures& run) {
    std::vector<std::string> names;
    for (const SettingDifference& setting : settings_that_differ(first.record, run.record))
        if (setting.kind == SettingKind::deciding) names.push_back(setting.name);
    return names;
}

}  // namespace

ScalePoint scale_point(const RunFigures& run) {
    const MeanStep mean = mean_step(run);
    check(mean.steps > 0 && mean.wall_s() > 0, [&] {
        return Error("E420",
                     fmt::format("'{}' has no recorded steps", printable(run.root.string())),
                     "ranks record the time of each step in logs/iN/rank-NNNNN.steps; none of its "
                     "starts did a step, or an earlier version made it",
                     "train some steps with this version");
    });
    return {.ranks = static_cast<int>(run.ranks.size()),
            .seconds = mean.wall_s(),
            .error_s = step_scatter(run).error,
            .room = room_of(run),
            .parts = parts_of(mean.phases)};
}

void check_same_work(std::span<const RunFigures> runs) {
    for (const RunFigures& run : runs)
        for (const std::string& name : differing(runs.front(), run))
            check(!is_work(name), [&] {
                return Error("E421",
                             fmt::format("the runs do different work: {} is {} in '{}' and {} in "
                                         "'{}'",
                                         name,
                                         value_text(runs.front(), name),
                                         printable(runs.front().root.string()),
                                         value_text(run, name),
                                         printable(run.root.string())),
                             "scaling can be measured only if nothing else changes; --batch is "
                             "that of all ranks together",
                             "train with the same settings on each number of ranks; use 'lockstep "
                             "compare A B' for other runs");
            });
}

std::vector<std::string> other_differences(std::span<const RunFigures> runs) {
    std::vector<std::string> names;
    for (const RunFigures& run : runs)
        for (const std::string& name : differing(runs.front(), run))
            if (!is_work(name) && std::ranges::find(names, name) == names.end())
                names.push_back(name);
    return names;
}

}  // namespace lockstep
