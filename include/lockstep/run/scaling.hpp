// SPDX-License-Identifier: Apache-2.0
/// @file
/// How the speed grows with the number of ranks: efficiency, the causes of losses, a forecast, and
/// how many ranks are worth it. Pure arithmetic on measured times; docs/scaling.md derives it.
#pragma once

#include "lockstep/run/run_figures.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// What ranks spend a step's time on, as far as their number changes it.
enum class StepPart : std::size_t {
    sharing,    ///< taking turns on cores; a loss only, measured as `computing`
    computing,  ///< forward and backward
    data,       ///< waiting for batches
    copying,    ///< waiting for samples on their way to the GPU
    reducing,   ///< summing gradients, where that is not hidden behind backward
    waiting,    ///< for the slowest rank
    updating,   ///< the optimizer
    saving,     ///< checkpoints
    other,      ///< everything else
    count,
};
std::string_view step_part_name(StepPart part);  ///< "exposed all-reduce": as in tables

/// By StepPart.
using StepParts = std::array<double, static_cast<std::size_t>(StepPart::count)>;

/// A step's phases as parts; the sum stays.
StepParts parts_of(const PhaseSeconds& phases);

/// What the same work took on one number of ranks.
struct ScalePoint {
    int ranks = 1;
    double seconds = 0;  ///< of a step, an epoch, a training: of the same on any number of ranks
    double error_s = 0;  ///< standard error of `seconds`; 0: not known
    /// How many ranks its cores can compute for at a time; not a bound where ranks have their own.
    double room = std::numeric_limits<double>::infinity();
    std::optional<StepParts> parts{};  ///< mean over the ranks, in seconds; they sum to `seconds`

    double at_once() const { return std::min<double>(ranks, room); }  ///< ranks that compute
    double turns() const { return ranks / at_once(); }  ///< ranks for each that computes
};

/// Beside the fewest ranks that were measured.
struct ScaleRow {
    ScalePoint point;
    double speedup = 1;     ///< so many times as fast
    double ideal_s = 0;     ///< what twice the ranks would take in half the time
    double efficiency = 1;  ///< ideal_s / seconds
    /// Where 1 - efficiency went: shares of `seconds` beyond what the fewest ranks' parts come to
    /// when they are divided by as many more ranks. They sum to 1 - efficiency; one below 0 is a
    /// gain. Known where both have parts.
    std::optional<StepParts> losses{};
};

/// `point` beside `base`, the fewest ranks.
ScaleRow scale_row(const ScalePoint& base, const ScalePoint& point);

/// One row for each point, by ranks. `points` is not empty and has no number of ranks twice.
std::vector<ScaleRow> scale_table(std::vector<ScalePoint> points);

/// What a time is made of as ranks P grow, each with a factor of its own.
enum class ScaleTerm : std::size_t {
    work,    ///< 1/P
    fixed,   ///< 1: no rank takes it off another (Amdahl's serial part)
    hops,    ///< log2 P: messages one after the other, as in a tree
    bytes,   ///< (P-1)/P: what a rank sends in a ring's reduction and its distribution
    spread,  ///< sqrt(2 ln P): by how much the slowest of P is behind, where times scatter
};
std::string_view scale_term_name(ScaleTerm term);  ///< the enumerator's word

/// One term of a model.
struct FittedTerm {
    StepPart part = StepPart::computing;
    ScaleTerm term = ScaleTerm::work;
    double seconds = 0;  ///< the factor, not negative
};

/// T(P), as a sum of terms for each part, or for the whole where parts are not known. Each rank has
/// cores of its own.
struct ScaleModel {
    std::vector<FittedTerm> terms;
    bool has_parts = false;
    double misfit = 0;  ///< root mean square of what points and model differ by, relative

    /// On `ranks`.
    ScalePoint at(int ranks) const;
};

/// Factors by least squares relative to the points' times, none below 0. `points` is not empty, and
/// none has ranks that share cores.
ScaleModel fit_scale_model(std::span<const ScalePoint> points);

/// What a number of ranks would take.
struct ScaleForecast {
    ScaleRow row;                    ///< of the model
    double least_s = 0, most_s = 0;  ///< see forecast_scale()
    double least_efficiency = 0, most_efficiency = 0;
};

/// By the model of `points`. Its band reaches over the models of all points but one and those of
/// other terms that fit as well. Beyond that it is wider by what points and model differ by
/// (Student's 95 %), twice the points' own errors, or 5 %, whatever is most: wide where points are
/// few. `points` as for fit_scale_model().
ScaleForecast forecast_scale(std::span<const ScalePoint> points, int ranks);

/// How many ranks are worth it. Figure 8.1 asks: distribute at all?
struct ScaleAdvice {
    int ranks = 1;                   ///< of those that were measured
    std::optional<int> worth_a_try;  ///< more than `ranks`, by the forecast
    /// The next larger number of ranks that was measured and is not worth it.
    std::optional<int> not_worth;
    bool not_worth_is_slower = false;  ///< else it is not efficient enough
};

/// The largest number of ranks that is at least `least_efficiency` efficient and faster than every
/// smaller number by more than the errors. `rows` as scale_table() gives them.
ScaleAdvice advise_scale(std::span<const ScaleRow> rows,
                         std::span<const ScaleForecast> forecasts,
                         double least_efficiency);

/// Of the part that costs most, where any does.
std::optional<StepPart> largest_loss(const ScaleRow& row);

/// `parts`, which sum to `whole`, in whole units of which there are `units` in 1, so rounded that
/// they sum to `whole` rounded.
std::vector<std::int64_t> rounded_parts(std::span<const double> parts, double whole, double units);

/// What runs say of one number of ranks. Seconds are of a step; the ranks that compute at a time
/// follow from their cores. Errors: E420 if the run kept no steps.
ScalePoint scale_point(const RunFigures& run);

/// Errors: E421 naming what differs, unless all runs do the same work: model, data, batch, and what
/// else decides how long that takes.
void check_same_work(std::span<const RunFigures> runs);

/// Settings that decide bits, differ between `runs` and do not change how much work it is.
std::vector<std::string> other_differences(std::span<const RunFigures> runs);

}  // namespace lockstep
