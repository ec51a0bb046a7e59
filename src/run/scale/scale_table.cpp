// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/run/scaling.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

constexpr std::size_t place_of(StepPart part) {
    return static_cast<std::size_t>(part);
}

// Computing that turns on cores made longer is no fault of the smaller batches.
void tell_sharing(StepParts& excess, const ScalePoint& base, const ScalePoint& point) {
    const double ideal_s = (*base.parts)[place_of(StepPart::computing)] * base.ranks / point.ranks;
    const double turns = point.turns() / base.turns();
    const double shared_s = ideal_s * (turns - 1);
    excess[place_of(StepPart::sharing)] += shared_s;
    excess[place_of(StepPart::computing)] -= shared_s;
}

StepParts losses_of(const ScalePoint& base, const ScalePoint& point) {
    StepParts losses{};
    for (std::size_t i = 0; i < losses.size(); ++i)
        losses[i] = (*point.parts)[i] - (*base.parts)[i] * base.ranks / point.ranks;
    tell_sharing(losses, base, point);
    for (double& loss : losses) loss /= point.seconds;
    return losses;
}

// By more than both may be off.
bool is_faster(const ScalePoint& point, const ScalePoint& than) {
    return than.seconds - point.seconds > 2 * std::hypot(point.error_s, than.error_s);
}

}  // namespace

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
    return names.at(place_of(part));
}

StepParts parts_of(const PhaseSeconds& phases) {
    const auto part_of = [](Phase phase) {
        switch (phase) {
            case Phase::data:
                return StepPart::data;
            case Phase::forward:
            case Phase::backward:
                return StepPart::computing;
            case Phase::comm:
                return StepPart::reducing;
            case Phase::wait:
                return StepPart::waiting;
            case Phase::update:
                return StepPart::updating;
            case Phase::checkpoint:
                return StepPart::saving;
            case Phase::copy:
                return StepPart::copying;
            default:
                return StepPart::other;
        }
    };
    StepParts parts{};
    for (std::size_t i = 0; i < phases.size(); ++i)
        parts[place_of(part_of(static_cast<Phase>(i)))] += phases[i];
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
