// SPDX-License-Identifier: Apache-2.0
// The model T(P) of the time on P ranks, and its forecasts.
//
// A step on P ranks is a sum of a few laws (docs/scaling.md names their sources):
//
//   T(P) = work / P + fixed + hops * log2 P + bytes * (P - 1) / P + spread * sqrt(2 ln P)
//
// Each rank has cores of its own. Where the phases of the steps are known each is fitted alone, by
// the terms that it can have, which tells terms apart that look alike in the sum: (P - 1) / P is 1
// - 1 / P, so a time alone cannot tell bytes from fixed and work.
//
// Must never happen: a factor below 0, with which a forecast far out falls below 0; a band that
// leaves out the forecast it is of.
// Tested: run/scaling_test.cpp
#include "scale/scale_model.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/run/comparison.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

/// The terms that a part, or the whole, may have.
struct Law {
    StepPart part = StepPart::computing;
    std::vector<ScaleTerm> terms;
};
using Laws = std::vector<Law>;

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

double value_of(ScaleTerm term, double ranks) {
    const std::array by_term{
        1 / ranks, 1.0, std::log2(ranks), (ranks - 1) / ranks, std::sqrt(2 * std::log(ranks))};
    return by_term.at(static_cast<std::size_t>(term));
}

bool have_parts(std::span<const ScalePoint> points) {
    return std::ranges::all_of(points,
                               [](const ScalePoint& point) { return point.parts.has_value(); });
}

// Relative to the whole time: a part that is nothing beside it does not matter.
Equations equations_of(const Law& law, std::span<const ScalePoint> points) {
    Equations equations;
    for (const ScalePoint& point : points) {
        std::vector<double> row;
        for (const ScaleTerm term : law.terms)
            row.push_back(value_of(term, point.ranks) / point.seconds);
        equations.rows.push_back(std::move(row));
        equations.targets.push_back(point.parts ? (*point.parts)[law.part] / point.seconds : 1);
    }
    return equations;
}

double misfit_of(const ScaleModel& model, std::span<const ScalePoint> points) {
    double squares = 0;
    for (const ScalePoint& point : points) {
        const double ratio = model.at(point.ranks).seconds / point.seconds;
        squares += (ratio - 1) * (ratio - 1);
    }
    return std::sqrt(squares / static_cast<double>(points.size()));
}

ScaleModel fit(std::span<const ScalePoint> points, const Laws& laws) {
    ScaleModel model{.terms = {}, .has_parts = have_parts(points)};
    for (const Law& law : laws) {
        const Solution solution = solve_not_negative(equations_of(law, points));
        for (std::size_t i = 0; i < law.terms.size(); ++i)
            model.terms.push_back({law.part, law.terms[i], solution.factors[i]});
    }
    model.misfit = misfit_of(model, points);
    return model;
}

// Student's: what 95 of 100 differences stay below, in standard deviations that were estimated with
// so many degrees of freedom. With one it would be 12.7, as if nobody knew how runs differ.
double student(std::size_t freedom) {
    constexpr auto quantiles = std::to_array({4.30, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31});
    return freedom <= quantiles.size() ? quantiles.at(freedom - 1) : 2;
}

// Each part was fitted by itself; the one that takes most counts.
std::size_t factors_of(const ScaleModel& model) {
    StepParts seconds{}, factors{};
    for (const FittedTerm& term : model.terms) {
        seconds[term.part] += term.seconds;
        if (term.seconds > 0) ++factors[term.part];
    }
    const auto longest = std::ranges::max_element(seconds) - seconds.begin();
    return static_cast<std::size_t>(factors[static_cast<StepPart>(longest)]);
}

// Returns the relative scatter of the steps themselves.
double relative_scatter(std::span<const ScalePoint> points) {
    double scatter = 0;
    for (const ScalePoint& point : points)
        scatter = std::max(scatter, 2 * point.error_s / point.seconds);
    return scatter;
}

// Returns the relative error of a model's time: the observed error, the steps' own scatter, or the
// usual difference between equal runs, because few points may all fit.
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

using Matrix = std::vector<std::vector<double>>;  // each row with its target at the end

constexpr double least_pivot = 1e-10;  // relative: columns that are hardly another's multiple

// Gauss and Jordan, the largest pivot first; nothing where columns depend on each other.
std::optional<std::vector<double>> solve(Matrix rows) {
    const std::size_t count = rows.size();
    for (std::size_t column = 0; column < count; ++column) {
        std::size_t pivot = column;
        for (std::size_t i = column; i < count; ++i)
            if (std::abs(rows[i][column]) > std::abs(rows[pivot][column])) pivot = i;
        if (std::abs(rows[pivot][column]) < least_pivot) return {};
        std::swap(rows[pivot], rows[column]);
        for (std::size_t i = 0; i < count; ++i) {
            if (i == column) continue;
            const double times = rows[i][column] / rows[column][column];
            for (std::size_t j = column; j <= count; ++j) rows[i][j] -= times * rows[column][j];
        }
    }
    std::vector<double> found;
    for (std::size_t i = 0; i < count; ++i) found.push_back(rows[i][count] / rows[i][i]);
    return found;
}

// Columns of length 1 tell dependent ones from small ones.
std::vector<double> lengths_of(const Equations& equations) {
    std::vector<double> lengths(equations.rows.front().size(), 0);
    for (const auto& row : equations.rows)
        for (std::size_t i = 0; i < row.size(); ++i) lengths[i] += row[i] * row[i];
    for (double& length : lengths) length = std::sqrt(length);
    return lengths;
}

double squares_of(const Equations& equations, std::span<const double> factors) {
    double squares = 0;
    for (std::size_t i = 0; i < equations.rows.size(); ++i) {
        double difference = -equations.targets[i];
        for (std::size_t j = 0; j < factors.size(); ++j)
            difference += equations.rows[i][j] * factors[j];
        squares += difference * difference;
    }
    return squares;
}

// The plain solution with the factors of `set`, the others being 0.
std::optional<Solution> solve_set(const Equations& equations,
                                  std::span<const double> lengths,
                                  const std::vector<std::size_t>& set) {
    Matrix normal(set.size(), std::vector<double>(set.size() + 1, 0));
    for (std::size_t k = 0; k < equations.rows.size(); ++k)
        for (std::size_t i = 0; i < set.size(); ++i) {
            const double left = equations.rows[k][set[i]] / lengths[set[i]];
            for (std::size_t j = 0; j < set.size(); ++j)
                normal[i][j] += left * equations.rows[k][set[j]] / lengths[set[j]];
            normal[i].back() += left * equations.targets[k];
        }
    const auto scaled = solve(std::move(normal));
    if (!scaled) return {};
    Solution solution{std::vector<double>(lengths.size(), 0), 0};
    for (std::size_t i = 0; i < set.size(); ++i) {
        if ((*scaled)[i] < 0) return {};
        solution.factors[set[i]] = (*scaled)[i] / lengths[set[i]];
    }
    solution.squares = squares_of(equations, solution.factors);
    return solution;
}

// All sets of columns that are not 0, the small ones first.
std::vector<std::vector<std::size_t>> sets_of(std::span<const double> lengths) {
    std::vector<std::vector<std::size_t>> sets;
    for (unsigned bits = 1; bits < 1u << lengths.size(); ++bits) {
        std::vector<std::size_t> set;
        for (std::size_t i = 0; i < lengths.size(); ++i)
            if ((bits >> i & 1u) != 0) set.push_back(i);
        if (std::ranges::all_of(set, [&](std::size_t i) { return lengths[i] > 0; }))
            sets.push_back(std::move(set));
    }
    std::ranges::stable_sort(sets, {}, &std::vector<std::size_t>::size);
    return sets;
}

}  // namespace

std::string_view scale_term_name(ScaleTerm term) {
    constexpr auto names =
        std::to_array<std::string_view>({"work", "fixed", "hops", "bytes", "spread"});
    return names.at(static_cast<std::size_t>(term));
}

ScalePoint ScaleModel::at(int ranks) const {
    ScalePoint point{.ranks = ranks};
    StepParts parts{};
    for (const FittedTerm& term : terms)
        parts[term.part] += term.seconds * value_of(term.term, ranks);
    for (const double seconds : parts) point.seconds += seconds;
    if (has_parts) point.parts = parts;
    return point;
}

ScaleModel fit_scale_model(std::span<const ScalePoint> points) {
    expect(!points.empty(), "a model needs points");
    return fit(points, usual_laws(have_parts(points)));
}

ScaleForecast forecast_scale(std::span<const ScalePoint> points, int ranks) {
    const ScaleModel model = fit_scale_model(points);
    const ScalePoint& fewest = *std::ranges::min_element(points, {}, &ScalePoint::ranks);
    ScaleForecast forecast{.row = scale_row(fewest, model.at(ranks))};
    forecast.least_s = forecast.most_s = forecast.row.point.seconds;
    for (const ScaleModel& other : models_to_doubt(points, model)) {
        const double seconds = other.at(ranks).seconds;
        forecast.least_s = std::min(forecast.least_s, seconds);
        forecast.most_s = std::max(forecast.most_s, seconds);
    }
    const double beyond = 1 + doubt_of(model, points);
    forecast.least_s /= beyond;
    forecast.most_s *= beyond;
    forecast.least_efficiency = forecast.row.ideal_s / forecast.most_s;
    forecast.most_efficiency = forecast.row.ideal_s / forecast.least_s;
    return forecast;
}

Solution solve_not_negative(const Equations& equations) {
    expect(!equations.rows.empty() && equations.rows.front().size() <= 8, "few factors");
    const std::vector<double> lengths = lengths_of(equations);
    const std::vector<double> none(lengths.size(), 0);
    Solution best{none, squares_of(equations, none)};
    const double as_good = 1e-12 * best.squares;
    for (const auto& set : sets_of(lengths))
        if (auto found = solve_set(equations, lengths, set))
            if (found->squares < best.squares - as_good) best = *std::move(found);
    return best;
}

}  // namespace lockstep
