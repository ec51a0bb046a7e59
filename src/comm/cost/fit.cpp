// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/cost_model.hpp"
#include "lockstep/core/error.hpp"

#include <cmath>
#include <limits>

namespace lockstep {
namespace {

constexpr std::size_t least_points = 3;
using Points = std::span<const CostPoint>;

struct Line {
    double a = 0, b = 0;
    double squares = 0;  ///< of the relative errors, summed
};

double squares_of(Points points, double a, double b) {
    double squares = 0;
    for (const CostPoint& point : points) {
        const double error = (a + b * point.bytes) / point.seconds - 1;
        squares += error * error;
    }
    return squares;
}

/// The line whose relative errors have the least squares; constants below zero become zero.
Line fit_line(Points points) {
    double w = 0, wn = 0, wnn = 0, wt = 0, wnt = 0;
    for (const auto& [n, t] : points) {
        const double weight = 1 / (t * t);
        w += weight;
        wn += weight * n;
        wnn += weight * n * n;
        wt += weight * t;
        wnt += weight * n * t;
    }
    const double determinant = w * wnn - wn * wn;
    double a = (wt * wnn - wn * wnt) / determinant, b = (w * wnt - wn * wt) / determinant;
    if (a < 0) {
        a = 0;
        b = wnt / wnn;
    } else if (b < 0) {
        a = wt / w;
        b = 0;
    }
    return {a, b, squares_of(points, a, b)};
}

struct Fit {
    Cost cost;
    double squares = std::numeric_limits<double>::infinity();
};

/// The best of all ways to cut `points` into at most `regimes` parts.
Fit best_fit(Points points, int regimes) {
    const Line whole = fit_line(points);
    Fit best{{{{points.front().bytes, points.back().bytes, whole.a, whole.b}}}, whole.squares};
    if (regimes == 1) return best;
    for (std::size_t cut = least_points; cut + least_points <= points.size(); ++cut) {
        Fit rest = best_fit(points.subspan(cut), regimes - 1);
        const Line first = fit_line(points.first(cut));
        const double squares = first.squares + rest.squares;
        if (squares >= best.squares) continue;
        auto& lines = rest.cost.regimes;
        lines.insert(lines.begin(),
                     {points.front().bytes, points[cut - 1].bytes, first.a, first.b});
        best = {std::move(rest.cost), squares};
    }
    return best;
}

}  // namespace

double Cost::seconds(double bytes) const {
    expect(!regimes.empty(), "a cost was fitted");
    for (std::size_t i = 0; i + 1 < regimes.size(); ++i) {
        const Regime &here = regimes[i], &next = regimes[i + 1];
        if (bytes <= here.to_bytes) return here.seconds(bytes);
        if (bytes >= next.from_bytes) continue;
        const double way =
            std::log(bytes / here.to_bytes) / std::log(next.from_bytes / here.to_bytes);
        return std::pow(here.seconds(bytes), 1 - way) * std::pow(next.seconds(bytes), way);
    }
    return regimes.back().seconds(bytes);
}

Cost fit_cost(std::span<const CostPoint> points, int regimes) {
    expect(points.size() >= least_points && regimes >= 1, "points enough for a line");
    return best_fit(points, regimes).cost;
}

}  // namespace lockstep
