// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

constexpr std::int64_t most_kept = 1000;

// Returns false if `part` is none, or has no such value.
bool take_part(KeepSettings& keep, const std::string& name, const GivenValue& value) {
    if (name == "every") {
        keep.every = parse_period("keep", value);
        return keep.every.unit == Period::Unit::epochs || keep.every.unit == Period::Unit::steps;
    }
    const auto number = parse_integer(value.text);
    if (!number || *number < (name == "last" ? 1 : 0) || *number > most_kept) return false;
    if (name == "last") keep.last = static_cast<int>(*number);
    if (name == "best") keep.best = static_cast<int>(*number);
    return name == "last" || name == "best";
}

KeepSettings parse_keep(const GivenValue& given) {
    KeepSettings keep;
    std::set<std::string> seen;
    for (const std::string& part : split(given.text, ',')) {
        const std::size_t sign = std::min(part.find('='), part.size());
        const std::string name = part.substr(0, sign);
        const std::string value = part.substr(std::min(sign + 1, part.size()));
        bool is_taken = seen.insert(name).second;
        try {
            is_taken = is_taken && take_part(keep, name, {value, given.origin});
        } catch (const Error&) {
            is_taken = false;
        }
        check(is_taken,
              "E103",
              fmt::format("--keep is '{}' (from {})", given.text, given.origin),
              fmt::format("'{}' is none of last=1 to {}, best=0 to {}, and every= with "
                          "steps or epochs, each of them once",
                          part,
                          most_kept,
                          most_kept),
              "for example --keep last=3,every=10epochs");
    }
    return keep;
}

std::string keep_text(const KeepSettings& keep) {
    std::string parts = fmt::format("last={}", keep.last);
    if (keep.every != Period{}) parts += ",every=" + period_text(keep.every);
    if (keep.best) parts += fmt::format(",best={}", *keep.best);
    return parts;
}

// The metrics of Lockstep's own tasks. A program's may have any meaning.
constexpr std::array<std::string_view, 4> lower_is_better{"loss", "mae", "perplexity", "rmse"};
constexpr std::array<std::string_view, 6> higher_is_better{
    "accuracy", "auc", "f1", "iou", "r2", "top5"};
constexpr std::string_view to_least = ":min", to_most = ":max";

// What --keep-best names: "kl:min".
struct Judge {
    std::string text, metric;
    std::optional<bool> is_lower_better;
};

Judge judge_of(const std::string& keep_best, TaskKind task) {
    Judge judge{.text = keep_best.empty() ? "loss" : keep_best};
    const bool is_least = judge.text.ends_with(to_least);
    const bool is_given = is_least || judge.text.ends_with(to_most);
    judge.metric = judge.text.substr(0, judge.text.size() - (is_given ? to_least.size() : 0));
    const auto is_in = [&](const auto& list) {
        return std::ranges::find(list, judge.metric) != list.end();
    };
    const bool is_known = judge.metric == "loss" || task != TaskKind::program;
    if (is_given)
        judge.is_lower_better = is_least;
    else if (is_known && is_in(lower_is_better))
        judge.is_lower_better = true;
    else if (is_known && is_in(higher_is_better))
        judge.is_lower_better = false;
    return judge;
}

bool looks_for_best(const TrainSettings& settings) {
    return best_kept(settings) > 0 || !settings.keep_best.empty() || settings.early_stop > 0;
}

// Of the loss scale, as torch.amp.GradScaler has them.
constexpr double growth = 2, backoff = 0.5;
constexpr std::int64_t steps_to_grow = 2000;

constexpr double least_factor = 0x1p-14;

constexpr double norm_decay = 0.9;

void average(double& mean, double value, bool is_first) {
    mean = is_first ? value : norm_decay * mean + (1 - norm_decay) * value;
}

}  // namespace

int best_kept(const TrainSettings& settings) {
    return settings.keep.best.value_or(settings.keep_best.empty() ? 0 : 1);
}

bool is_better(const std::string& keep_best, double value, double than) {
    const Judge judge = judge_of(keep_best, TaskKind::automatic);
    return judge.is_lower_better.value_or(false) ? value < than : value > than;
}

void check_metric(const TrainSettings& settings, const std::map<std::string, double>& metrics) {
    std::vector<std::string> names;
    for (const auto& [name, value] : metrics) names.push_back(name);
    const Judge judge = judge_of(settings.keep_best, settings.task.kind);
    const std::string what = fmt::format("--keep-best is '{}'", settings.keep_best);
    check(metrics.contains(judge.metric),
          "E103",
          what,
          fmt::format("the task's metrics are {}", fmt::join(names, ", ")),
          "give one of these");
    check(judge.is_lower_better.has_value(),
          "E103",
          what,
          "the model names this metric, and its best value may be the lowest or the "
          "highest",
          fmt::format("give --keep-best {0}:min, or --keep-best {0}:max", judge.metric));
}

void note_evaluation(BestEvaluation& best,
                     const TrainSettings& settings,
                     const std::map<std::string, double>& metrics,
                     std::int64_t step) {
    if (!looks_for_best(settings)) return;
    const Judge judge = judge_of(settings.keep_best, settings.task.kind);
    const double value = metrics.at(judge.metric);
    if (best.metric != judge.text) best = {.metric = judge.text};
    ++best.not_since;
    if (!std::isfinite(value)) return;
    std::vector<EvaluatedStep> order = std::move(best.next);
    if (best.step > 0) order.insert(order.begin(), {best.step, best.value});
    const auto behind = std::ranges::find_if(
        order, [&](const EvaluatedStep& one) { return is_better(judge.text, value, one.value); });
    if (behind == order.begin()) best.not_since = 0;
    order.insert(behind, {step, value});
    best.step = order.front().step;
    best.value = order.front().value;
    const auto others = static_cast<std::size_t>(std::max(best_kept(settings), 1)) - 1;
    best.next.assign(
        order.begin() + 1,
        order.begin() + 1 + static_cast<std::ptrdiff_t>(std::min(others, order.size() - 1)));
}

std::string passed_over(const TrainSettings& settings,
                        const std::map<std::string, double>& metrics) {
    if (!looks_for_best(settings)) return "";
    const std::string metric = judge_of(settings.keep_best, settings.task.kind).metric;
    const double value = metrics.at(metric);
    if (std::isfinite(value)) return "";
    return fmt::format("the test {} is {}: {} passes this evaluation over",
                       metric,
                       value,
                       !settings.keep_best.empty() ? "--keep-best " + settings.keep_best
                       : settings.early_stop > 0   ? "--early-stop"
                                                   : "--keep");
}

std::vector<std::int64_t> kept_steps(const TrainSettings& settings, const BestEvaluation& best) {
    const auto wanted = static_cast<std::size_t>(best_kept(settings));
    const bool is_judged = best.metric == judge_of(settings.keep_best, settings.task.kind).text;
    if (wanted == 0 || !is_judged || best.step == 0) return {};
    std::vector<std::int64_t> steps{best.step};
    for (const EvaluatedStep& one : best.next)
        if (steps.size() < wanted) steps.push_back(one.step);
    return steps;
}

std::string reason_to_stop(const TrainSettings& settings, const BestEvaluation& best) {
    const bool is_due = settings.early_stop > 0 &&
                        best.metric == judge_of(settings.keep_best, settings.task.kind).text &&
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

Error loss_error(double loss, std::int64_t step, const TrainSettings& settings) {
    const bool is_first = step <= 1;
    std::string why = is_first
                          ? "no weight has changed yet, and the samples are finite: an initial "
                            "weight is not, or numbers overflow in the model or the loss"
                          : "the weights have diverged";
    std::string fix =
        is_first
            ? "scale inputs and targets to numbers around 1, and check the model's initial weights"
            : "lower --lr, use --warmup-steps, or check the data; the last checkpoint is good";
    if (settings.precision == Precision::fp16) {
        why += ", or a number is beyond fp16's 65,504";
        fix += "; --precision bf16 has the range of fp32";
    }
    if (settings.threads > 1) {
        why += fmt::format(", or an operation went wrong on {} threads", settings.threads);
        fix += "; if --threads 1 works, check OMP_* variables";
    }
    return {"E701", fmt::format("the loss is {} at step {}", loss, step), why, fix};
}

Error no_rollback_error(std::int64_t step, std::int64_t wanted) {
    return {"E701",
            fmt::format("step {} is not finite, and cannot be rolled back", step),
            wanted == 0 ? "no checkpoint was due before it"
                        : fmt::format("the checkpoint of step {} is gone or damaged", wanted),
            "check the data, or begin a new run with a lower --lr or a shorter --checkpoint-every"};
}

Error scale_error(double factor, std::int64_t step) {
    return {"E701",
            fmt::format("the loss scale has fallen to {:.3g} at step {}", factor, step),
            "gradients are not finite in fp16 whatever the scale: the weights have diverged, or "
            "some samples give no finite gradient",
            "lower --lr, use --warmup-steps, check the data, or use --precision bf16 in a new run; "
            "the last checkpoint is good"};
}

Error skipped_error(int steps, std::int64_t step) {
    return {"E701",
            fmt::format("{} steps in a row were skipped, the last is step {}", steps, step),
            "no loss or gradient of them is finite: the weights have diverged, or samples are not "
            "finite",
            "lower --lr, use --warmup-steps or --clip-norm, or check the data; the last checkpoint "
            "is good"};
}

// As at::_amp_update_scale_, which torch.amp.GradScaler calls.
LossScale next_scale(const LossScale& scale, bool overflowed) {
    if (overflowed) return {scale.factor * backoff, 0};
    if (scale.good_steps + 1 < steps_to_grow) return {scale.factor, scale.good_steps + 1};
    const double grown = scale.factor * growth;
    return {grown <= std::numeric_limits<float>::max() ? grown : scale.factor, 0};
}

bool is_spent(const LossScale& scale) {
    return scale.factor < least_factor;
}

// Equations A.2 and A.3: unbiased, as E|g|^2 = |G|^2 + tr(S) / B for a mean over B samples.
void NoiseScale::add(const GradientNorms& norms) {
    const double small = norms.leaf_samples, large = norms.step_samples;
    const double squares =
        (large * norms.step_squares - small * norms.leaf_squares) / (large - small);
    const double variance = (norms.leaf_squares - norms.step_squares) / (1 / small - 1 / large);
    average(squares_, squares, is_empty_);
    average(variance_, variance, is_empty_);
    is_empty_ = false;
}

std::optional<double> NoiseScale::samples() const {
    const bool is_known = squares_ > 0 && variance_ > 0 && std::isfinite(variance_ / squares_);
    return is_known ? std::optional(variance_ / squares_) : std::nullopt;
}

Option keep_option(KeepSettings& target) {
    return {.name = "keep",
            .value = "PART[,PART]",
            .default_value = keep_text(target),
            .help =
                "checkpoints to keep: last=N, the newest; every=10epochs or every=500steps, for "
                "good the first after each such period; best=N, the best by --keep-best",
            .kind = OptionKind::list,
            .assign = [&target](const GivenValue& given) { target = parse_keep(given); },
            .current = [&target]() -> ConfigValue { return keep_text(target); }};
}

Retention retention_of(const TrainSettings& settings,
                       const RunLength& length,
                       const BestEvaluation& best,
                       std::int64_t read) {
    const bool rolls_back = settings.on_nonfinite == NonFinite::rollback;
    return {.last = settings.keep.last,
            .every = steps_of(settings.keep.every, length),
            .rollback = rolls_back ? steps_of(settings.checkpoint_every, length) : 0,
            .read = read,
            .best = kept_steps(settings, best)};
}

}  // namespace lockstep
