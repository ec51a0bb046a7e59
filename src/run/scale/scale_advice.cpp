// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/run/scaling.hpp"

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

// Returns true if it is faster by more than both errors allow.
bool is_faster(const ScalePoint& point, const ScalePoint& than) {
    return than.seconds - point.seconds > 2 * std::hypot(point.error_s, than.error_s);
}

}  // namespace

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
