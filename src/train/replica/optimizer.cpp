// SPDX-License-Identifier: Apache-2.0
#include "replica/optimizer.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "checkpoint/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

bool has_momentum(OptimizerKind kind) {
    return kind == OptimizerKind::sgd || kind == OptimizerKind::lars;
}

// Whether each tensor has a rate of its own.
bool has_own_rates(OptimizerKind kind) {
    return kind == OptimizerKind::lars || kind == OptimizerKind::lamb;
}

// Whether a tensor is a bias or of a norm, which have neither weight decay nor a rate of their own.
bool is_spared(const OptimizerSettings& settings, std::size_t dimensions) {
    const bool has_groups =
        settings.kind != OptimizerKind::sgd && settings.kind != OptimizerKind::adam;
    return has_groups && !settings.decays_all && dimensions <= 1;
}

// All terms of all rules: a loop reads its own.
UpdateTerms terms_of(const OptimizerSettings& settings,
                     const ParameterPiece& piece,
                     const UpdateStep& step) {
    const auto as_float = [](double value) { return static_cast<float>(value); };
    const bool is_decoupled = settings.kind == OptimizerKind::adamw;
    const double rate = step.rate * piece.rate_factor;
    const double decay = is_spared(settings, piece.dimensions) ? 0 : settings.weight_decay;
    // t of the papers: the number of updates of these moments, including this one.
    const auto t = static_cast<double>(step.number - piece.missed);
    const double first_correction =
        has_momentum(settings.kind) ? 1 : 1 - std::pow(settings.beta1, t);
    return {.rate = as_float(rate / first_correction),
            .scale = step.gradient_scale,
            .momentum = as_float(settings.momentum),
            .decay = as_float(is_decoupled ? 0 : decay),
            .shrink = as_float(is_decoupled ? 1 - rate * decay : 1),
            .beta1 = as_float(settings.beta1),
            .beta2 = as_float(settings.beta2),
            .keep1 = as_float(1 - settings.beta1),
            .keep2 = as_float(1 - settings.beta2),
            .epsilon = as_float(settings.epsilon),
            .of_m = as_float(1 / first_correction),
            .root2 = as_float(std::sqrt(1 - std::pow(settings.beta2, t)))};
}

// All of `piece`; `first` and `second` are its first two state vectors, as far as there are any.
UpdateLaunch launch_of(UpdateKind kind,
                       const ParameterPiece& piece,
                       const UpdateStep& step,
                       const UpdateTerms& terms,
                       const float* rate = nullptr) {
    return {.kind = kind,
            .values = piece.values,
            .gradients = piece.gradients,
            .first = piece.state.empty() ? nullptr : piece.state[0],
            .second = piece.state.size() < 2 ? nullptr : piece.state[1],
            .count = static_cast<std::int64_t>(piece.count),
            .terms = terms,
            .decided = step.decided,
            .rate = rate,
            .mark = piece.mark};
}

UpdateKind loop_of(const OptimizerSettings& settings) {
    switch (settings.kind) {
        case OptimizerKind::sgd:
            return settings.nesterov ? UpdateKind::nesterov : UpdateKind::sgd;
        case OptimizerKind::adam:
        case OptimizerKind::adamw:
            return UpdateKind::adam;
        case OptimizerKind::lars:
            return UpdateKind::lars;
        case OptimizerKind::lamb:
            return UpdateKind::lamb;
    }
    throw Error("E103",
                fmt::format("no optimizer has the number {}", static_cast<int>(settings.kind)),
                "OptimizerKind has adam, adamw, lamb, lars and sgd",
                "use one of its enumerators");
}

// Elements [at, at + count) of `whole`.
ParameterPiece part_of(const ParameterPiece& whole, std::size_t at, std::size_t count) {
    ParameterPiece part = whole;
    part.count = count;
    part.values += at;
    part.gradients += at;
    for (float*& state : part.state) state += at;
    return part;
}

// Adds the share of a piece to the exact sums of its tensor: squares of weights before the update,
// then of gradients (lars, not yet scaled) or directions (lamb). Changes its state only. With lamb,
// m / (1 - beta1^t) by sqrt(v / (1 - beta2^t)) + epsilon, and weight decay, are directions:
// computed twice, once for their norm and once to go there, which is cheaper than a vector to keep
// them in.
void prepare(const OptimizerSettings& settings,
             const ParameterPiece& piece,
             const UpdateStep& step,
             std::int64_t* sums,
             UpdateLoops& loops) {
    const bool has_sums = !is_spared(settings, piece.dimensions);
    const auto add = [&](const ParameterPiece& part, const float* updates) {
        loops.add_squares(sums, part.values, part.count);
        loops.add_squares(sums + exact::words, updates, part.count);
    };
    if (settings.kind == OptimizerKind::lars) {
        if (has_sums) add(piece, piece.gradients);
        return;
    }
    const UpdateTerms terms = terms_of(settings, piece, step);
    const std::span<float> directions = loops.room();
    for (std::size_t at = 0; at < piece.count; at += directions.size()) {
        const ParameterPiece part =
            part_of(piece, at, std::min(directions.size(), piece.count - at));
        UpdateLaunch launch = launch_of(UpdateKind::lamb_moments, part, step, terms);
        loops.run({&launch, 1});
        if (!has_sums) continue;
        launch.kind = UpdateKind::lamb_directions;
        launch.gradients = part.values;
        launch.values = directions.data();
        launch.mark = nullptr;  // the sums need a number in any case
        loops.run({&launch, 1});
        add(part, directions.data());
    }
}

// Follows all steps (Polyak and Juditsky, SIAM J. Control Optim. 30(4), 1992; with weights that
// fade by `average_decay` a step as in https://arxiv.org/abs/1703.01780).
UpdateLaunch average(const OptimizerSettings& settings,
                     const ParameterPiece& piece,
                     const UpdateStep& step) {
    return {.kind = UpdateKind::average,
            .values = piece.values,
            .first = piece.state.back(),
            .count = static_cast<std::int64_t>(piece.count),
            .terms = {.keep = static_cast<float>(1 - settings.average_decay)},
            .decided = step.decided};
}

// The patterns of "fc.*=0.1,head.*=10", and the factor of each.
std::vector<std::pair<std::string, double>> name_factors(const std::string& list) {
    std::vector<std::pair<std::string, double>> found;
    for (const std::string& part : name_patterns(list)) {
        const auto at = part.rfind('=');
        const auto factor =
            at == part.npos ? std::nullopt : parse_real(std::string_view(part).substr(at + 1));
        check(factor && at > 0 && std::isfinite(*factor) && *factor >= 0,
              "E103",
              fmt::format("--lr-group has '{}'", printable(part)),
              "each part is a pattern for names, '=', and a factor of at least 0",
              "for example --lr-group 'fc1.*=0.1'");
        found.emplace_back(part.substr(0, at), *factor);
    }
    return found;
}

}  // namespace

std::string group_text(const OptimizerSettings& settings, std::span<const std::size_t> dimensions) {
    std::vector<std::string> what;
    if (settings.weight_decay != 0)
        what.push_back(fmt::format("weight decay {}", settings.weight_decay));
    if (has_own_rates(settings.kind)) what.emplace_back("rates of their own");
    if (what.empty()) return "";
    const auto spared = std::ranges::count_if(
        dimensions, [&](std::size_t count) { return is_spared(settings, count); });
    return fmt::format("{} for {} tensors{}",
                       fmt::join(what, " and "),
                       std::ssize(dimensions) - spared,
                       spared > 0 ? fmt::format(", none for {} biases and norms", spared) : "");
}

std::vector<double> rate_factors(const OptimizerSettings& settings,
                                 const std::vector<std::string>& names) {
    const auto factors = name_factors(settings.rate_factors);
    std::vector<std::string> patterns;
    for (const auto& [pattern, factor] : factors) patterns.push_back(pattern);
    check_patterns_match("lr-group",
                         patterns,
                         {names.begin(), names.end()},
                         "the model has no parameter that learns");
    std::vector<double> found(names.size(), 1);
    for (std::size_t i = 0; i < names.size(); ++i)
        for (const auto& [pattern, factor] : factors)
            if (matches(pattern, names[i])) found[i] = factor;
    return found;
}

void check_optimizer(const OptimizerSettings& settings) {
    static_cast<void>(loop_of(settings));
}

std::vector<std::string> state_names(const OptimizerSettings& settings) {
    std::vector<std::string> names{"m", "v"};
    if (has_momentum(settings.kind)) names = {"momentum"};
    if (settings.average_decay != 0) names.emplace_back(average_state);
    return names;
}

void update_pieces(const OptimizerSettings& settings,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops) {
    // Other copies prepare as well, for that changes their state; but they are not counted again.
    const auto own_rates = [&] {
        std::int64_t* sums = loops.sums(2 * tensors);
        for (const ParameterPiece& piece : pieces)
            prepare(settings, piece, step, sums + 2 * piece.tensor * exact::words, loops);
        if (copy != ParameterCopy::first) sums = loops.sums(2 * tensors);
        loops.sum_over(ranks, sums, 2 * tensors);
        return loops.own_rates(
            {.rule = {.kind = settings.kind == OptimizerKind::lars ? OwnRateRule::Kind::lars
                                                                   : OwnRateRule::Kind::lamb,
                      .trust = settings.trust,
                      .weight_decay = settings.weight_decay},
             .sums = sums,
             .tensors = static_cast<std::int64_t>(tensors),
             .rate = step.rate,
             .scale = step.gradient_scale,
             .decided = step.decided});
    };
    const float* const rates = has_own_rates(settings.kind) ? own_rates() : nullptr;
    std::vector<UpdateLaunch> updates, averages;
    for (const ParameterPiece& piece : pieces) {
        updates.push_back(launch_of(loop_of(settings),
                                    piece,
                                    step,
                                    terms_of(settings, piece, step),
                                    rates == nullptr ? nullptr : rates + piece.tensor));
        if (settings.average_decay != 0) averages.push_back(average(settings, piece, step));
    }
    loops.run(updates);
    loops.run(averages);
}

}  // namespace lockstep
