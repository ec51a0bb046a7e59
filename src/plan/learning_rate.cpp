// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/plan/run_length.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Constants of the one-cycle schedule: those of PyTorch's OneCycleLR.
constexpr double first_share = 1.0 / 25, rising_share = 0.3;

// Half a cosine.
double annealed(double from, double to, double done) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

// Returns the rate of step `at` of `steps`: the last one has `end`, and the peak may lie between
// two steps.
double one_cycle(double peak, double end, double at, double steps) {
    const double top = rising_share * steps - 1;
    const double last = steps - 1;
    return at <= top ? annealed(peak * first_share, peak, at / top)
                     : annealed(peak, end, (std::min(at, last) - top) / (last - top));
}

std::int64_t steps_of(const Period& period, const RunLength& length) {
    return period.unit == Period::Unit::epochs ? period.count * length.steps_per_epoch
                                               : period.count;
}

double stepped(double peak,
               const ScheduleSettings& schedule,
               std::int64_t step,
               const RunLength& length) {
    const std::int64_t passed = step / std::max<std::int64_t>(1, steps_of(schedule.every, length));
    return peak * std::pow(schedule.gamma, static_cast<double>(passed));
}

// After the warm-up.
double scheduled(double peak,
                 const ScheduleSettings& schedule,
                 std::int64_t step,
                 const RunLength& length) {
    const auto left = std::max<std::int64_t>(1, length.total_steps - schedule.warmup_steps);
    const auto at = static_cast<double>(step - schedule.warmup_steps);
    const double done = std::min(1.0, at / static_cast<double>(left));
    const double span = peak - schedule.end;
    switch (schedule.kind) {
        case ScheduleKind::constant:
            return peak;
        case ScheduleKind::step:
            return stepped(peak, schedule, step, length);
        case ScheduleKind::cosine:
            return annealed(peak, schedule.end, done);
        case ScheduleKind::linear:
            return schedule.end + span * (1 - done);
        case ScheduleKind::polynomial:
            return schedule.end + span * std::pow(1 - done, schedule.power);
        case ScheduleKind::one_cycle:
            return one_cycle(peak, schedule.end, at, static_cast<double>(left));
    }
    throw Error("E103",
                "no schedule has the number " + std::to_string(static_cast<int>(schedule.kind)),
                "ScheduleKind has constant, step, cosine, linear, polynomial and one_cycle",
                "use one of its enumerators");
}

}  // namespace

double peak_rate(const TrainSettings& settings) {
    const double ratio = static_cast<double>(settings.batch) /
                         static_cast<double>(settings.schedule.reference_batch);
    const double given = settings.optimizer.learning_rate;
    if (settings.schedule.scale == RateScale::none) return given;
    return given * (settings.schedule.scale == RateScale::linear ? ratio : std::sqrt(ratio));
}

std::string scale_text(const TrainSettings& settings, const RunLength& length) {
    if (settings.schedule.scale == RateScale::none) return "";
    const std::int64_t reference = settings.schedule.reference_batch;
    const std::int64_t updates = length.total_steps * settings.batch / reference;
    std::string text = fmt::format(
        "learning rate {:.6g}, scaled from {:.6g}: this run makes {} updates of batch {}, the "
        "reference {} of {}",
        peak_rate(settings),
        settings.optimizer.learning_rate,
        grouped(static_cast<std::uint64_t>(length.total_steps)),
        grouped(static_cast<std::uint64_t>(settings.batch)),
        grouped(static_cast<std::uint64_t>(updates)),
        grouped(static_cast<std::uint64_t>(reference)));
    if (updates > length.total_steps)
        text += ": expect lower accuracy unless it warms up or trains for more epochs";
    return text;
}

double learning_rate(double peak,
                     const ScheduleSettings& schedule,
                     std::int64_t step,
                     const RunLength& length) {
    if (step >= schedule.warmup_steps) return scheduled(peak, schedule, step, length);
    const double first = schedule.kind == ScheduleKind::one_cycle
                             ? peak * first_share
                             : scheduled(peak, schedule, schedule.warmup_steps, length);
    return first * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
}

}  // namespace lockstep
