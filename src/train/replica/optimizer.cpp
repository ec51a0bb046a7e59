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

namespace lockstep {
namespace {

// Returns the number of updates of the moments of `piece`, including this one: t of the paper.
double moment_number(const ParameterPiece& piece, const UpdateStep& step) {
    return static_cast<double>(step.number - piece.missed);
}

// 1 - beta1^t: the first moment is divided by this.
double first_correction(const OptimizerSettings& settings,
                        const ParameterPiece& piece,
                        const UpdateStep& step) {
    return 1 - std::pow(settings.beta1, moment_number(piece, step));
}

// Factors of the moments, and of gradients.
UpdateTerms moment_terms(const OptimizerSettings& settings,
                         const ParameterPiece& piece,
                         const UpdateStep& step) {
    return {.scale = step.gradient_scale,
            .beta1 = static_cast<float>(settings.beta1),
            .beta2 = static_cast<float>(settings.beta2),
            .keep1 = static_cast<float>(1 - settings.beta1),
            .keep2 = static_cast<float>(1 - settings.beta2),
            .epsilon = static_cast<float>(settings.epsilon),
            .root2 = static_cast<float>(
                std::sqrt(1 - std::pow(settings.beta2, moment_number(piece, step))))};
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

// Whether a tensor is a bias or of a norm, which have neither weight decay nor a rate of their own.
bool is_spared(const OptimizerSettings& settings, std::size_t dimensions) {
    const bool has_groups =
        settings.kind != OptimizerKind::sgd && settings.kind != OptimizerKind::adam;
    return has_groups && !settings.decays_all && dimensions <= 1;
}

class PlainOptimizer : public Optimizer {
  public:
    explicit PlainOptimizer(const OptimizerSettings& settings) : settings_(settings) {}

  protected:
    bool spares(const ParameterPiece& piece) const {
        return is_spared(settings_, piece.dimensions);
    }
    double decay_of(const ParameterPiece& piece) const {
        return spares(piece) ? 0 : settings_.weight_decay;
    }

    OptimizerSettings settings_;
};

class Sgd : public PlainOptimizer {
  public:
    using PlainOptimizer::PlainOptimizer;

    std::vector<std::string> state_names() const override { return {"momentum"}; }

    UpdateLaunch update(const ParameterPiece& piece,
                        const float*,
                        const UpdateStep& step) const override {
        return launch_of(settings_.nesterov ? UpdateKind::nesterov : UpdateKind::sgd,
                         piece,
                         step,
                         {.rate = static_cast<float>(step.rate * piece.rate_factor),
                          .scale = step.gradient_scale,
                          .momentum = static_cast<float>(settings_.momentum),
                          .decay = static_cast<float>(settings_.weight_decay)});
    }
};

class Adam : public PlainOptimizer {
  public:
    using PlainOptimizer::PlainOptimizer;

    std::vector<std::string> state_names() const override { return {"m", "v"}; }

    UpdateLaunch update(const ParameterPiece& piece,
                        const float*,
                        const UpdateStep& step) const override {
        const double decay = decay_of(piece);
        const bool is_coupled = settings_.kind == OptimizerKind::adam;
        UpdateTerms terms = moment_terms(settings_, piece, step);
        const double rate = step.rate * piece.rate_factor;
        terms.rate = static_cast<float>(rate / first_correction(settings_, piece, step));
        terms.decay = static_cast<float>(is_coupled ? decay : 0);
        terms.shrink = static_cast<float>(is_coupled ? 1 : 1 - rate * decay);
        return launch_of(UpdateKind::adam, piece, step, terms);
    }
};

class Lars : public PlainOptimizer {
  public:
    using PlainOptimizer::PlainOptimizer;

    std::vector<std::string> state_names() const override { return {"momentum"}; }
    OwnRateRule own_rate() const override {
        return {OwnRateRule::Kind::lars, settings_.trust, settings_.weight_decay};
    }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep&,
                 const TensorSums& sums,
                 UpdateLoops& loops) const override {
        if (spares(piece)) return;
        loops.add_squares(sums.weights, piece.values, piece.count);
        loops.add_squares(sums.updates, piece.gradients, piece.count);
    }

    UpdateLaunch update(const ParameterPiece& piece,
                        const float* rate,
                        const UpdateStep& step) const override {
        return launch_of(UpdateKind::lars,
                         piece,
                         step,
                         {.scale = step.gradient_scale,
                          .momentum = static_cast<float>(settings_.momentum),
                          .decay = static_cast<float>(decay_of(piece))},
                         rate);
    }
};

// Elements [at, at + count) of `whole`.
ParameterPiece part_of(const ParameterPiece& whole, std::size_t at, std::size_t count) {
    ParameterPiece part = whole;
    part.count = count;
    part.values += at;
    part.gradients += at;
    for (float*& state : part.state) state += at;
    return part;
}

// m / (1 - beta1^t) by sqrt(v / (1 - beta2^t)) + epsilon, and weight decay, are directions:
// computed twice, once for their norm and once to go there, which is cheaper than a vector to keep
// them in.
class Lamb : public PlainOptimizer {
  public:
    using PlainOptimizer::PlainOptimizer;

    std::vector<std::string> state_names() const override { return {"m", "v"}; }
    OwnRateRule own_rate() const override { return {.kind = OwnRateRule::Kind::lamb}; }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 const TensorSums& sums,
                 UpdateLoops& loops) const override {
        const std::span<float> directions = loops.room();
        for (std::size_t at = 0; at < piece.count; at += directions.size()) {
            const ParameterPiece part =
                part_of(piece, at, std::min(directions.size(), piece.count - at));
            UpdateLaunch launch =
                launch_of(UpdateKind::lamb_moments, part, step, terms_of(part, step));
            loops.run({&launch, 1});
            if (spares(piece)) continue;
            launch.kind = UpdateKind::lamb_directions;
            launch.gradients = part.values;
            launch.values = directions.data();
            launch.mark = nullptr;  // the sums need a number in any case
            loops.run({&launch, 1});
            loops.add_squares(sums.updates, directions.data(), part.count);
            loops.add_squares(sums.weights, part.values, part.count);
        }
    }

    UpdateLaunch update(const ParameterPiece& piece,
                        const float* rate,
                        const UpdateStep& step) const override {
        return launch_of(UpdateKind::lamb, piece, step, terms_of(piece, step), rate);
    }

  private:
    UpdateTerms terms_of(const ParameterPiece& piece, const UpdateStep& step) const {
        UpdateTerms terms = moment_terms(settings_, piece, step);
        terms.of_m = static_cast<float>(1 / first_correction(settings_, piece, step));
        terms.decay = static_cast<float>(decay_of(piece));
        return terms;
    }
};

/// Trains as `inner` does, to the bit. The average, the last of the state vectors, begins as the
/// weights before the first step (Polyak and Juditsky, SIAM J. Control Optim. 30(4), 1992; with
/// weights that fade by `decay` a step as in https://arxiv.org/abs/1703.01780).
class Averaged : public Optimizer {
  public:
    Averaged(std::unique_ptr<Optimizer> inner, double decay)
        : inner_(std::move(inner)), keep_(static_cast<float>(1 - decay)) {}

    std::vector<std::string> state_names() const override {
        std::vector<std::string> names = inner_->state_names();
        names.emplace_back(average_state);
        return names;
    }

    OwnRateRule own_rate() const override { return inner_->own_rate(); }

    void prepare(const ParameterPiece& piece,
                 const UpdateStep& step,
                 const TensorSums& sums,
                 UpdateLoops& loops) const override {
        inner_->prepare(piece, step, sums, loops);
    }

    UpdateLaunch update(const ParameterPiece& piece,
                        const float* rate,
                        const UpdateStep& step) const override {
        return inner_->update(piece, rate, step);
    }

    std::optional<UpdateLaunch> average(const ParameterPiece& piece,
                                        const UpdateStep& step) const override {
        return UpdateLaunch{.kind = UpdateKind::average,
                            .values = piece.values,
                            .first = piece.state.back(),
                            .count = static_cast<std::int64_t>(piece.count),
                            .terms = {.keep = keep_},
                            .decided = step.decided};
    }

  private:
    std::unique_ptr<Optimizer> inner_;
    float keep_;
};

// Returns the treatment of the tensors that are not spared: "weight decay 0.01 and rates of their
// own".
std::string treatment(const OptimizerSettings& settings) {
    const bool has_rates =
        settings.kind == OptimizerKind::lars || settings.kind == OptimizerKind::lamb;
    const std::string rates = has_rates ? "rates of their own" : "";
    if (settings.weight_decay == 0) return rates;
    return fmt::format(
        "weight decay {}{}{}", settings.weight_decay, has_rates ? " and " : "", rates);
}

// Without an average.
std::unique_ptr<Optimizer> make_bare(const OptimizerSettings& settings) {
    switch (settings.kind) {
        case OptimizerKind::sgd:
            return std::make_unique<Sgd>(settings);
        case OptimizerKind::adam:
        case OptimizerKind::adamw:
            return std::make_unique<Adam>(settings);
        case OptimizerKind::lars:
            return std::make_unique<Lars>(settings);
        case OptimizerKind::lamb:
            return std::make_unique<Lamb>(settings);
    }
    throw Error("E103",
                fmt::format("no optimizer has the number {}", static_cast<int>(settings.kind)),
                "OptimizerKind has adam, adamw, lamb, lars and sgd",
                "use one of its enumerators");
}

// The patterns of "fc.*=0.1,head.*=10", and the factor of each.
std::vector<std::pair<std::string, double>> name_factors(const std::string& list) {
    std::vector<std::pair<std::string, double>> found;
    for (const std::string& part : name_patterns(list)) {
        const auto at = part.rfind('=');
        const auto factor =
            at == part.npos ? std::nullopt : parse_real(std::string_view(part).substr(at + 1));
        check(factor && at > 0 && std::isfinite(*factor) && *factor >= 0, [&] {
            return Error("E103",
                         fmt::format("--lr-group has '{}'", printable(part)),
                         "each part is a pattern for names, '=', and a factor of at least 0",
                         "for example --lr-group 'fc1.*=0.1'");
        });
        found.emplace_back(part.substr(0, at), *factor);
    }
    return found;
}

}  // namespace

std::string group_text(const OptimizerSettings& settings, std::span<const std::size_t> dimensions) {
    const std::string what = treatment(settings);
    if (what.empty()) return "";
    const auto spared = std::ranges::count_if(
        dimensions, [&](std::size_t count) { return is_spared(settings, count); });
    const auto decayed = std::ssize(dimensions) - spared;
    return fmt::format("{} for {} tensors{}",
                       what,
                       decayed,
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

std::unique_ptr<Optimizer> make_optimizer(const OptimizerSettings& settings) {
    auto bare = make_bare(settings);
    if (settings.average_decay == 0) return bare;
    return std::make_unique<Averaged>(std::move(bare), settings.average_decay);
}

void update_pieces(const Optimizer& optimizer,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops) {
    // Other copies prepare as well, for that changes their state; but they are not counted again.
    const auto own_rates = [&] {
        std::int64_t* sums = loops.sums(2 * tensors);
        for (const ParameterPiece& piece : pieces) {
            std::int64_t* const own = sums + 2 * piece.tensor * exact::words;
            optimizer.prepare(piece, step, {own, own + exact::words}, loops);
        }
        if (copy != ParameterCopy::first) sums = loops.sums(2 * tensors);
        loops.sum_over(ranks, sums, 2 * tensors);
        return loops.own_rates({.rule = optimizer.own_rate(),
                                .sums = sums,
                                .tensors = static_cast<std::int64_t>(tensors),
                                .rate = step.rate,
                                .scale = step.gradient_scale,
                                .decided = step.decided});
    };
    const bool has_rates = optimizer.own_rate().kind != OwnRateRule::Kind::none;
    const float* const rates = has_rates ? own_rates() : nullptr;
    std::vector<UpdateLaunch> updates, averages;
    for (const ParameterPiece& piece : pieces) {
        updates.push_back(
            optimizer.update(piece, has_rates ? rates + piece.tensor : nullptr, step));
        if (const auto average = optimizer.average(piece, step)) averages.push_back(*average);
    }
    loops.run(updates);
    loops.run(averages);
}

}  // namespace lockstep
