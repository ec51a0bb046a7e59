// SPDX-License-Identifier: Apache-2.0
// T(P) for ranks P, and what it says of ranks that nobody has tried.
//
// A step on P ranks is a sum of few laws (docs/scaling.md says whose they are):
//
//   T(P) = (P / A)^crowding
//          * (work / A + fixed + hops * log2 P + bytes * (P - 1) / P + spread * sqrt(2 ln P))
//
// where A = min(P, room) is how many ranks compute at a time: beyond that they take turns on cores,
// which bring no more together, and less than before: each finds its caches full of another's
// data, and does once more what each does whole. How much less only points with shared cores tell;
// without them the forecast takes what is usual, and the band doubts it.
// Where the phases of the steps are known each is fitted alone, by the terms that it can have,
// which tells terms apart that look alike in the sum: (P - 1) / P is 1 - 1 / P, so a time alone
// cannot tell bytes from fixed and work.
//
// Must never happen: a factor below 0, with which a forecast far out falls below 0; a band that
// leaves out the forecast it is of.
// Tested: observe/scale_model_test.cpp
#include "lockstep/core/error.hpp"
#include "lockstep/observe/scaling.hpp"

#include "scale/least_squares.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <ranges>
#include <utility>

namespace lockstep {
namespace {

/// Which terms a part, or the whole, may have.
struct Law {
    StepPart part = StepPart::computing;
    std::vector<ScaleTerm> terms;
};
using Laws = std::vector<Law>;

// Twice as many ranks on a core are taken to need 15 % longer, and 0 to 52 % in the band: of 21
// that were measured 20 took 0 to 47 % (docs/scaling.md).
constexpr double usual_crowding = 0.2, crowding_doubt = 0.4;

constexpr std::size_t index_of(StepPart part) {
    return static_cast<std::size_t>(part);
}

// The first of several that fit a single point as well is taken: see solve_not_negative().
Laws laws_of_parts() {
    using enum ScaleTerm;
    Laws laws;
    for (const StepPart part : {StepPart::computing,
                                StepPart::data,
                                StepPart::copying,
                                StepPart::updating,
                                StepPart::saving,
                                StepPart::other})
        laws.push_back({part, {work, fixed}});
    laws.push_back({StepPart::reducing, {bytes, hops}});
    laws.push_back({StepPart::waiting, {spread}});
    return laws;
}

// Other laws that times could follow as well.
std::vector<Laws> laws_to_doubt(bool has_parts) {
    using enum ScaleTerm;
    const auto whole = [](std::vector<ScaleTerm> terms) {
        return Laws{{StepPart::computing, std::move(terms)}};
    };
    if (!has_parts) return {whole({work}), whole({work, fixed}), whole({work, hops})};
    std::vector<Laws> doubts;
    for (const ScaleTerm only : {bytes, hops}) {
        Laws laws = laws_of_parts();
        std::ranges::find(laws, StepPart::reducing, &Law::part)->terms = {only};
        doubts.push_back(std::move(laws));
    }
    return doubts;
}

Laws usual_laws(bool has_parts) {
    using enum ScaleTerm;
    return has_parts ? laws_of_parts() : Laws{{StepPart::computing, {work, fixed, hops}}};
}

double plain_value(ScaleTerm term, double ranks) {
    switch (term) {
        case ScaleTerm::work:
            return 1 / ranks;
        case ScaleTerm::fixed:
            return 1;
        case ScaleTerm::hops:
            return std::log2(ranks);
        case ScaleTerm::bytes:
            return (ranks - 1) / ranks;
        case ScaleTerm::spread:
            return std::sqrt(2 * std::log(ranks));
    }
    return 0;
}

double value_of(ScaleTerm term, const ScalePoint& point, double crowding) {
    const double ranks = term == ScaleTerm::work ? point.at_once() : point.ranks;
    return plain_value(term, ranks) * std::pow(point.turns(), crowding);
}

bool have_parts(std::span<const ScalePoint> points) {
    return std::ranges::all_of(points,
                               [](const ScalePoint& point) { return point.parts.has_value(); });
}

double measured(const ScalePoint& point, StepPart part) {
    return point.parts ? (*point.parts)[index_of(part)] : point.seconds;
}

// Relative to the whole time: a part that is nothing beside it does not matter.
Equations equations_of(const Law& law, std::span<const ScalePoint> points, double crowding) {
    Equations equations;
    for (const ScalePoint& point : points) {
        std::vector<double> row;
        for (const ScaleTerm term : law.terms)
            row.push_back(value_of(term, point, crowding) / point.seconds);
        equations.rows.push_back(std::move(row));
        equations.targets.push_back(measured(point, law.part) / point.seconds);
    }
    return equations;
}

double misfit_of(const ScaleModel& model, std::span<const ScalePoint> points) {
    double squares = 0;
    for (const ScalePoint& point : points) {
        const double ratio = model.at(point.ranks, point.room).seconds / point.seconds;
        squares += (ratio - 1) * (ratio - 1);
    }
    return std::sqrt(squares / static_cast<double>(points.size()));
}

ScaleModel fit_crowded(std::span<const ScalePoint> points, const Laws& laws, double crowding) {
    ScaleModel model{.terms = {}, .has_parts = have_parts(points), .crowding = crowding};
    for (const Law& law : laws) {
        const Solution solution = solve_not_negative(equations_of(law, points, crowding));
        for (std::size_t i = 0; i < law.terms.size(); ++i)
            model.terms.push_back({law.part, law.terms[i], solution.factors[i]});
    }
    model.misfit = misfit_of(model, points);
    return model;
}

// Of a crowding, where times differ from their model by 2 % and it from the usual by half its doubt
// (standard deviations): points that hardly share cores say little of it.
double unlikeliness(const ScaleModel& model, std::size_t points) {
    constexpr double times_differ = 0.02;
    const double misfit = model.misfit / times_differ;
    const double unusual = (model.crowding - usual_crowding) / (crowding_doubt / 2);
    return misfit * misfit * static_cast<double>(points) + unusual * unusual;
}

ScaleModel fit(std::span<const ScalePoint> points, const Laws& laws) {
    ScaleModel best = fit_crowded(points, laws, usual_crowding);
    if (std::ranges::all_of(points, [](const ScalePoint& point) { return point.turns() <= 1; }))
        return best;
    constexpr int steps = 50;
    for (int i = 0; i <= steps; ++i) {
        ScaleModel model = fit_crowded(points, laws, static_cast<double>(i) / steps);
        if (unlikeliness(model, points.size()) < unlikeliness(best, points.size()))
            best = std::move(model);
    }
    best.shares_cores = true;
    return best;
}

// Student's: what 95 of 100 differences stay below, in standard deviations that were estimated with
// so many degrees of freedom. With one it would be 12.7, as if nobody knew how runs differ.
double student(std::size_t freedom) {
    constexpr auto quantiles = std::to_array({4.30, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31});
    return freedom <= quantiles.size() ? quantiles.at(freedom - 1) : 2;
}

// Each part was fitted by itself; the one that takes most counts.
std::size_t factors_of(const ScaleModel& model) {
    StepParts seconds{};
    std::array<std::size_t, std::tuple_size_v<StepParts>> factors{};
    for (const FittedTerm& term : model.terms) {
        seconds[index_of(term.part)] += term.seconds;
        if (term.seconds > 0) ++factors[index_of(term.part)];
    }
    return factors.at(
        static_cast<std::size_t>(std::ranges::max_element(seconds) - seconds.begin()));
}

// Of the steps' own, relative.
double relative_scatter(std::span<const ScalePoint> points) {
    double scatter = 0;
    for (const ScalePoint& point : points)
        scatter = std::max(scatter, 2 * point.error_s / point.seconds);
    return scatter;
}

// How far a time may be from its model, relative: by what is seen, by what the steps' own scatter
// allows for, and by what runs of the same differ by although few points may all fit.
double doubt_of(const ScaleModel& model, std::span<const ScalePoint> points) {
    constexpr double unseen = 0.05;
    const std::size_t factors = factors_of(model);
    const std::size_t freedom = points.size() > factors ? points.size() - factors : 1;
    const double share = static_cast<double>(points.size()) / static_cast<double>(freedom);
    const double seen = student(freedom) * model.misfit * std::sqrt(share);
    return std::max({relative_scatter(points), seen, unseen});
}

std::vector<ScaleModel> models_to_doubt(std::span<const ScalePoint> points,
                                        const ScaleModel& model) {
    std::vector<ScaleModel> models;
    for (std::size_t out = 0; points.size() > 1 && out < points.size(); ++out) {
        std::vector<ScalePoint> others(points.begin(), points.end());
        others.erase(others.begin() + static_cast<std::ptrdiff_t>(out));
        models.push_back(fit(others, usual_laws(model.has_parts)));
    }
    const double as_well = std::max(1.5 * model.misfit, relative_scatter(points)) + 1e-9;
    for (const Laws& laws : laws_to_doubt(model.has_parts)) {
        ScaleModel other = fit(points, laws);
        if (other.misfit <= as_well) models.push_back(std::move(other));
    }
    return models;
}

// What `foretold` could be instead: by other models, and by other crowding where ranks take more
// turns or fewer than in any point.
std::vector<double> seconds_to_doubt(std::span<const ScalePoint> points,
                                     const ScaleModel& model,
                                     const ScalePoint& foretold) {
    std::vector<double> all{foretold.seconds};
    for (const ScaleModel& other : models_to_doubt(points, model))
        all.push_back(other.at(foretold.ranks, foretold.room).seconds);
    const auto [least, most] =
        std::ranges::minmax(points | std::views::transform(&ScalePoint::turns));
    const double unseen = foretold.turns() / std::clamp(foretold.turns(), least, most);
    for (const double doubt : {-std::min(crowding_doubt, model.crowding), crowding_doubt})
        all.push_back(foretold.seconds * std::pow(unseen, doubt));
    return all;
}

const ScalePoint& fewest(std::span<const ScalePoint> points) {
    return *std::ranges::min_element(points, {}, &ScalePoint::ranks);
}

}  // namespace

std::string_view scale_term_name(ScaleTerm term) {
    constexpr auto names =
        std::to_array<std::string_view>({"work", "fixed", "hops", "bytes", "spread"});
    return names.at(static_cast<std::size_t>(term));
}

ScalePoint ScaleModel::at(int ranks, double room) const {
    ScalePoint point{.ranks = ranks, .room = room};
    StepParts parts{};
    for (const FittedTerm& term : terms)
        parts[index_of(term.part)] += term.seconds * value_of(term.term, point, crowding);
    for (const double seconds : parts) point.seconds += seconds;
    if (has_parts) point.parts = parts;
    return point;
}

ScaleModel fit_scale_model(std::span<const ScalePoint> points) {
    expect(!points.empty(), "a model needs points");
    return fit(points, usual_laws(have_parts(points)));
}

ScaleForecast forecast_scale(std::span<const ScalePoint> points, int ranks, double room) {
    const ScaleModel model = fit_scale_model(points);
    ScaleForecast forecast;
    const ScalePoint& base = fewest(points);
    forecast.row = scale_row(base, model.at(ranks, room));
    const auto [least, most] =
        std::ranges::minmax(seconds_to_doubt(points, model, forecast.row.point));
    const double beyond = 1 + doubt_of(model, points);
    forecast.least_s = least / beyond;
    forecast.most_s = most * beyond;
    forecast.least_efficiency = forecast.row.ideal_s / forecast.most_s;
    forecast.most_efficiency = forecast.row.ideal_s / forecast.least_s;
    return forecast;
}

}  // namespace lockstep
