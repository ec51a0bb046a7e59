// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/run/comparison.hpp"
#include "lockstep/run/scaling.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

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

// Computing that turns on cores made longer is no fault of the smaller batches.
StepParts losses_of(const ScalePoint& base, const ScalePoint& point) {
    StepParts losses{};
    for (std::size_t i = 0; i < losses.size(); ++i)
        losses[i] = (*point.parts)[i] - (*base.parts)[i] * base.ranks / point.ranks;
    const double ideal_s = (*base.parts)[StepPart::computing] * base.ranks / point.ranks;
    const double turns = point.turns() / base.turns(), shared_s = ideal_s * (turns - 1);
    losses[StepPart::sharing] += shared_s;
    losses[StepPart::computing] -= shared_s;
    for (double& loss : losses) loss /= point.seconds;
    return losses;
}

// By more than both may be off.
bool is_faster(const ScalePoint& point, const ScalePoint& than) {
    return than.seconds - point.seconds > 2 * std::hypot(point.error_s, than.error_s);
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

std::string_view step_part_name(StepPart part) {
    constexpr std::array<std::string_view, static_cast<std::size_t>(StepPart::count)> names = {
        "shared cores",
        "computing",
        "data",
        "copies to the GPU",
        "exposed all-reduce",
        "slowest rank",
        "update",
        "saving",
        "other"};
    return names.at(static_cast<std::size_t>(part));
}

StepParts parts_of(const PhaseSeconds& phases) {
    const auto part_of = [](Phase phase) {
        if (phase == Phase::data) return StepPart::data;
        if (phase == Phase::forward || phase == Phase::backward) return StepPart::computing;
        if (phase == Phase::comm) return StepPart::reducing;
        if (phase == Phase::wait) return StepPart::waiting;
        if (phase == Phase::update) return StepPart::updating;
        if (phase == Phase::checkpoint) return StepPart::saving;
        return phase == Phase::copy ? StepPart::copying : StepPart::other;
    };
    StepParts parts{};
    for (std::size_t i = 0; i < phases.size(); ++i)
        parts[part_of(static_cast<Phase>(i))] += phases[i];
    return parts;
}

ScaleRow scale_row(const ScalePoint& base, const ScalePoint& point) {
    ScaleRow row{.point = point};
    row.speedup = base.seconds / point.seconds;
    row.ideal_s = base.seconds * base.ranks / point.ranks;
    row.efficiency = row.ideal_s / point.seconds;
    if (base.parts && point.parts) row.losses = losses_of(base, point);
    return row;
}

std::vector<ScaleRow> scale_table(std::vector<ScalePoint> points) {
    expect(!points.empty(), "a table needs points");
    std::ranges::sort(points, {}, &ScalePoint::ranks);
    std::vector<ScaleRow> rows;
    for (const ScalePoint& point : points) rows.push_back(scale_row(points.front(), point));
    return rows;
}

std::optional<StepPart> largest_loss(const ScaleRow& row) {
    if (!row.losses) return {};
    const auto largest = std::ranges::max_element(*row.losses);
    if (*largest <= 0) return {};
    return static_cast<StepPart>(largest - row.losses->begin());
}

// The rest after rounding down goes to those that lost most.
std::vector<std::int64_t> rounded_parts(std::span<const double> parts, double whole, double units) {
    std::vector<std::int64_t> rounded;
    std::int64_t left = std::llround(whole * units);
    for (const double part : parts) {
        rounded.push_back(static_cast<std::int64_t>(std::floor(part * units)));
        left -= rounded.back();
    }
    std::vector<std::size_t> order(parts.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, std::ranges::greater(), [&](std::size_t i) {
        return parts[i] * units - static_cast<double>(rounded[i]);
    });
    for (std::size_t i = 0; left > 0 && i < order.size(); ++i, --left) ++rounded[order[i]];
    for (std::size_t i = order.size(); left < 0 && i > 0; --i, ++left) --rounded[order[i - 1]];
    return rounded;
}

ScaleAdvice advise_scale(std::span<const ScaleRow> rows,
                         std::span<const ScaleForecast> forecasts,
                         double least_efficiency) {
    expect(!rows.empty(), "advice needs rows");
    const ScaleRow* best = &rows.front();
    const ScaleRow* fastest = best;
    ScaleAdvice advice;
    for (const ScaleRow& row : rows.subspan(1)) {
        const bool gains = is_faster(row.point, fastest->point);
        if (gains) fastest = &row;
        if (gains && row.efficiency >= least_efficiency) {
            best = &row;
            advice.not_worth.reset();
        } else if (!advice.not_worth) {
            advice.not_worth = row.point.ranks;
            advice.not_worth_is_slower = !gains;
        }
    }
    advice.ranks = best->point.ranks;
    for (const ScaleForecast& forecast : forecasts)
        if (forecast.row.point.ranks > rows.back().point.ranks &&
            forecast.row.efficiency >= least_efficiency &&
            forecast.row.point.seconds < fastest->point.seconds)
            advice.worth_a_try = std::max(advice.worth_a_try.value_or(0), forecast.row.point.ranks);
    return advice;
}

}  // namespace lockstep
