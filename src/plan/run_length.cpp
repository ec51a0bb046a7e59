// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include "lockstep/core/numbers.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>

#include <fmt/format.h>

namespace lockstep {
namespace {

// Of a one-cycle; those of PyTorch's OneCycleLR.
constexpr double first_share = 1.0 / 25, rising_share = 0.3;

// Steps, of which a save's cost is told; and the share of a step that one may show of a save.
constexpr std::size_t slow_at_first = 10, least_compared = 8, least_after = 16, most_calm = 64;
constexpr double shown_of_step = 0.02;

// The standard error of the median of one normally distributed value, by their median deviation.
constexpr double error_of_median = 1.2533 * 1.4826;

// Half a cosine.
double annealed(double from, double to, double done) {
    return to + (from - to) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

// Of step `at` of `steps`: the last one has `end`, and the peak may lie between two steps.
double one_cycle(double peak, double end, double at, double steps) {
    const double top = rising_share * steps - 1, last = steps - 1;
    return at <= top ? annealed(peak * first_share, peak, at / top)
                     : annealed(peak, end, (std::min(at, last) - top) / (last - top));
}

// After the warm-up.
double scheduled(double peak,
                 const ScheduleSettings& schedule,
                 std::int64_t step,
                 const RunLength& length) {
    const auto left = std::max<std::int64_t>(1, length.total_steps - schedule.warmup_steps);
    const auto at = static_cast<double>(step - schedule.warmup_steps);
    const double done = std::min(1.0, at / static_cast<double>(left)), span = peak - schedule.end;
    const std::int64_t passed = step / std::max<std::int64_t>(1, steps_of(schedule.every, length));
    switch (schedule.kind) {
        case ScheduleKind::constant:
            return peak;
        case ScheduleKind::step:
            return peak * std::pow(schedule.gamma, static_cast<double>(passed));
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

// Whether a leaf of so many rows, in near-equal micro-batches, has one of a single row.
bool has_single_row(std::int64_t rows, const TrainSettings& settings) {
    return rows > 0 && rows / std::min<std::int64_t>(rows, settings.micro_batches) == 1;
}

// Returns the same for a step of `samples`, whose leaves are near-equal.
bool step_has_single_row(std::int64_t samples, const TrainSettings& settings) {
    const std::int64_t least = samples / settings.virtual_ranks;
    const std::int64_t most = least + (samples % settings.virtual_ranks > 0 ? 1 : 0);
    return has_single_row(least, settings) || has_single_row(most, settings);
}

Error single_row(const std::string& step, const TrainSettings& settings, const std::string& fix) {
    return {"E217",
            "batch norm has no statistics of a single sample",
            fmt::format("{}, for {} virtual ranks{}: some compute one by itself",
                        step,
                        settings.virtual_ranks,
                        settings.micro_batches > 1
                            ? fmt::format(" in {} micro-batches each", settings.micro_batches)
                            : ""),
            fix};
}

constexpr int most_virtual_ranks = 64;

// With 4 the cnn's steps take 1.13 times as long as with one leaf, with 8 1.07 times
// (docs/benchmarks.md, Room to grow).
constexpr std::int64_t least_rows = 8;
// Goyal et al., https://arxiv.org/abs/1706.02677, take batch statistics over so many.
constexpr std::int64_t least_rows_across = 32;

// Of a leaf, for each weight: with fewer, reading weights and adding gradients leaf by leaf takes
// as long as computing them (docs/numerics.md, V by default). Some room to grow is worth that.
constexpr std::uint64_t least_products = 24;
constexpr int room_at_any_price = 4;

// A rank that has all leaves holds so many gradients at once.
constexpr std::uint64_t most_gradient_bytes = 1U << 30;

bool suits(const TrainSettings& given,
           std::int64_t samples,
           const ModelTraits& model,
           int virtual_ranks) {
    TrainSettings settings = given;
    settings.virtual_ranks = virtual_ranks;
    const std::int64_t least = model.looks_across_samples ? least_rows_across : least_rows;
    const std::int64_t rows = std::min(settings.batch, samples) / virtual_ranks;
    const bool has_work = virtual_ranks <= room_at_any_price || model.products == 0 ||
                          static_cast<std::uint64_t>(rows) * model.products >=
                              least_products * static_cast<std::uint64_t>(model.parameters);
    const std::uint64_t gradients = std::bit_width(static_cast<unsigned>(virtual_ranks));
    const std::uint64_t bytes = static_cast<std::uint64_t>(model.parameters) * sizeof(float);
    // The last step of an epoch counts, for a run may become longer.
    return settings.batch % virtual_ranks == 0 && rows >= least && has_work &&
           gradients * bytes <= most_gradient_bytes &&
           !(model.looks_across_samples && single_rows(settings, samples, {}));
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
        grouped(length.total_steps),
        grouped(settings.batch),
        grouped(updates),
        grouped(reference));
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

RunLength length_of(const TrainSettings& settings, std::int64_t samples) {
    const std::int64_t rounding = settings.drops_last ? 0 : settings.batch - 1;
    const std::int64_t epoch = (samples + rounding) / settings.batch;
    return {.steps_per_epoch = epoch,
            .total_steps = settings.max_steps > 0 ? settings.max_steps : settings.epochs * epoch};
}

std::int64_t steps_of(const Period& period, const RunLength& length) {
    if (period.unit == Period::Unit::epochs) return period.count * length.steps_per_epoch;
    return period.unit == Period::Unit::steps ? period.count : 0;
}

std::int64_t rollback_step(const TrainSettings& settings,
                           const RunLength& length,
                           std::int64_t done) {
    const std::int64_t steps = steps_of(settings.checkpoint_every, length);
    return done / steps * steps;
}

std::uint32_t dropped_samples(const TrainSettings& settings, std::uint64_t samples) {
    const auto batch = static_cast<std::uint64_t>(settings.batch);
    return settings.drops_last ? static_cast<std::uint32_t>(samples % batch) : 0;
}

std::optional<Error> single_rows(const TrainSettings& settings,
                                 std::int64_t samples,
                                 const RunLength& length) {
    if (step_has_single_row(std::min(settings.batch, samples), settings))
        return single_row(
            fmt::format("each step has {} samples", std::min(settings.batch, samples)),
            settings,
            settings.micro_batches > 1
                ? "use a larger --batch, fewer --virtual-ranks or --micro-batches"
                : "use a larger --batch, or fewer --virtual-ranks");
    const std::int64_t rest = samples % settings.batch;
    const bool is_reached = length.total_steps >= length.steps_per_epoch;
    if (settings.drops_last || !is_reached || !step_has_single_row(rest, settings)) return {};
    return single_row(fmt::format("the last step of an epoch has {} of {} samples", rest, samples),
                      settings,
                      "leave that step out with --drop-last, or use another --batch");
}

double save_interval_s(double cost_s, double mtbf_s, double overhead) {
    return std::max(std::sqrt(2 * cost_s * mtbf_s), cost_s / overhead);
}

bool SaveCost::add_step(double wall_s, bool is_beside) {
    if (steps_++ < slow_at_first) return false;
    if (is_beside) {
        const bool is_next = ended_.has_value();
        if (is_next) settle();
        beside_s_.push_back(wall_s);
        return is_next;
    }
    if (calm_s_.size() < most_calm)
        calm_s_.push_back(wall_s);
    else
        calm_s_[calm_++ % most_calm] = wall_s;
    if (!ended_ || (++calm_since_ < least_after && !beside_s_.empty())) return false;
    settle();
    return true;
}

void SaveCost::add_save(double held_s, double busy_s) {
    if (ended_) settle();
    ended_ = {held_s, busy_s};
    calm_since_ = 0;
}

void SaveCost::settle() {
    const auto [held_s, busy_s] = *std::exchange(ended_, {});
    ++saves_;
    known_s_ += held_s + busy_s;
    const auto steps = static_cast<double>(beside_s_.size());
    shown_s_ += held_s;
    if (std::min(beside_s_.size(), calm_s_.size()) >= least_compared) {
        const double usual_s = median_of(calm_s_);
        shown_s_ += steps * (median_of(beside_s_) - usual_s);
        std::vector<double> off = calm_s_;
        for (double& wall_s : off) wall_s = std::abs(wall_s - usual_s);
        const double one = error_of_median * median_of(std::move(off));
        variance_s2_ += one * one * steps * (1 + steps / static_cast<double>(calm_s_.size()));
    } else {
        shown_s_ += busy_s;
    }
    beside_s_.clear();
}

double SaveCost::mean_s() const {
    return std::max(known_s_, shown_s_ + 2 * std::sqrt(variance_s2_)) / std::max(saves_, 1);
}

double SaveCost::usual_step_s() const {
    return calm_s_.empty() ? 0 : median_of(calm_s_);
}

std::int64_t SaveCost::spread(double guess_s, double steps_to_next) const {
    if (calm_s_.empty()) return 1;
    double steps = (saves_ > 0 ? shown_s_ / saves_ : guess_s) / (shown_of_step * usual_step_s());
    if (steps_to_next > 0) steps = std::min(steps, steps_to_next / 2);
    return std::max(static_cast<std::int64_t>(steps), std::int64_t{1});
}

TimeLimit::TimeLimit(std::int64_t deadline_unix_s, double unix_now_s, double now_s)
    : deadline_s_(std::numeric_limits<double>::infinity()), margin_s_(0) {
    if (deadline_unix_s <= 0) return;
    const double left_s = std::max(static_cast<double>(deadline_unix_s) - unix_now_s, 0.0);
    deadline_s_ = now_s + left_s;
    margin_s_ = std::min(90.0, left_s / 10);
}

void TimeLimit::begin_turn(double now_s) {
    if (turn_began_s_ > 0) turns_s_[turns_++ % turns_s_.size()] = now_s - turn_began_s_;
    turn_began_s_ = now_s;
}

void TimeLimit::note_save(double seconds) {
    longest_save_s_ = std::max(longest_save_s_, seconds);
}

bool TimeLimit::is_near(double now_s) const {
    const double turn_s = *std::ranges::max_element(turns_s_);
    return now_s + 2 * turn_s + 2 * longest_save_s_ + margin_s_ >= deadline_s_;
}

int default_virtual_ranks(const TrainSettings& settings,
                          std::int64_t samples,
                          const ModelTraits& model,
                          int ranks) {
    const int least = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
    if (has_16_bits(settings.precision) || settings.micro_batches > 1 || settings.plain_summation)
        return least;
    for (int most = most_virtual_ranks; most > least; most /= 2)
        if (suits(settings, samples, model, most)) return most;
    return least;
}

}  // namespace lockstep
