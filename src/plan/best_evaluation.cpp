// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/plan/losses.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::array<std::string_view, 4> errors{"loss", "mae", "perplexity", "rmse"};

std::string judged_metric(const TrainSettings& settings) {
    return settings.keep_best.empty() ? "loss" : settings.keep_best;
}

bool is_better(const std::string& metric, double value, double than) {
    return std::ranges::find(errors, metric) != errors.end() ? value < than : value > than;
}

}  // namespace

void check_metric(const TrainSettings& settings, const std::map<std::string, double>& metrics) {
    std::vector<std::string> names;
    for (const auto& [name, value] : metrics) names.push_back(name);
    check(settings.keep_best.empty() || metrics.contains(settings.keep_best), [&] {
        return Error("E103",
                     fmt::format("--keep-best is '{}'", settings.keep_best),
                     fmt::format("the task's metrics are {}", fmt::join(names, ", ")),
                     "give one of these");
    });
}

void note_evaluation(BestEvaluation& best,
                     const TrainSettings& settings,
                     const std::map<std::string, double>& metrics,
                     std::int64_t step) {
    if (settings.keep_best.empty() && settings.early_stop == 0) return;
    const std::string metric = judged_metric(settings);
    const double value = metrics.at(metric);
    if (best.metric != metric) best = {.metric = metric};
    const bool is_first = best.step == 0;
    if (std::isfinite(value) && (is_first || is_better(metric, value, best.value)))
        best = {.metric = metric, .step = step, .value = value};
    else
        ++best.not_since;
}

std::string passed_over(const TrainSettings& settings,
                        const std::map<std::string, double>& metrics) {
    if (settings.keep_best.empty() && settings.early_stop == 0) return "";
    const std::string metric = judged_metric(settings);
    const double value = metrics.at(metric);
    if (std::isfinite(value)) return "";
    return fmt::format(
        "the test {} is {}: {} passes this evaluation over",
        metric,
        value,
        settings.keep_best.empty() ? "--early-stop" : "--keep-best " + settings.keep_best);
}

std::int64_t kept_step(const TrainSettings& settings, const BestEvaluation& best) {
    return best.metric == settings.keep_best ? best.step : 0;
}

std::string reason_to_stop(const TrainSettings& settings, const BestEvaluation& best) {
    const bool is_due = settings.early_stop > 0 && best.metric == judged_metric(settings) &&
                        best.not_since >= settings.early_stop;
    if (!is_due) return "";
    if (best.step == 0)
        return fmt::format(
            "{} evaluations, and none with a finite {}", best.not_since, best.metric);
    return fmt::format("{} evaluations without a better {} than {:.6g} of step {}",
                       best.not_since,
                       best.metric,
                       best.value,
                       best.step);
}

}  // namespace lockstep
