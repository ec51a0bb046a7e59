// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares runs. Two of them: the settings that differ, the differences in speed and accuracy, and
/// whether they exceed the noise of the steps. Runs on several numbers of ranks: efficiency, the
/// causes of losses, a forecast, and the number of ranks that is worthwhile. Pure arithmetic on
/// measured times; docs/scaling.md derives it.
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

/// The role of a setting.
enum class SettingKind {
    deciding,  ///< other values give other bits
    contract,  ///< other conditions of the bits: processor, instruction set, versions
    free,      ///< settings of speed and habits
};

/// A setting with its values in two runs; "" if a run does not have it.
struct SettingDifference {
    std::string name;
    SettingKind kind = SettingKind::free;
    std::string first{}, second{};  ///< values as text
    std::string first_origin{},
        second_origin{};  ///< "command line", "train.toml:3:1"; "": the default
};

/// Returns the differences, deciding settings first, by name; those of is_of_start() are left out.
std::vector<SettingDifference> settings_that_differ(const RunRecord& first,
                                                    const RunRecord& second);

/// A mean and its error.
struct Scatter {
    double mean = 0;
    double error = 0;        ///< standard error; 0 with too few values
    std::int64_t count = 0;  ///< number of values
};

/// Returns the mean of `values` in order of time, which may be correlated. Their standard error is
/// that of the means of ten stretches (batch means; Law, "Simulation Modeling and Analysis",
/// 9.5.3).
Scatter scatter_of(std::span<const double> values);

/// Returns the seconds of steps, of the first rank that kept some, because they are equal on all
/// ranks. The first step of a start is left out, as in mean_step().
Scatter step_scatter(const RunFigures& run);

/// Returns the same for one phase, with each step's mean over all ranks.
Scatter phase_scatter(const RunFigures& run, Phase phase);

/// Returns true if means differ by more than twice their common standard error; fewer than four
/// values show nothing.
bool is_beyond_scatter(const Scatter& first, const Scatter& second);

/// A value that is measured from time to time.
struct CurvePoint {
    double at = 0;  ///< samples or updates
    double value = 0;
};

/// Returns the metric called `name` of the evaluations of `run`, by updates times `samples_each`.
std::vector<CurvePoint> evaluation_curve(const RunFigures& run,
                                         const std::string& name,
                                         double samples_each);

/// Returns the value at `at` by linear interpolation, or that of a point within one hundredth.
/// Returns nothing beyond the curve's ends.
std::optional<double> value_at(std::span<const CurvePoint> curve, double at);

/// Values of two curves at the last place that both reach.
struct CurveGap {
    double at = 0, first = 0, second = 0;
    double difference() const { return second - first; }  ///< above 0: the second is higher
};

/// Returns nothing if there is no place that both reach.
std::optional<CurveGap> curve_gap(std::span<const CurvePoint> first,
                                  std::span<const CurvePoint> second);

/// The parts of a step's time that depend on the number of ranks.
enum class StepPart : std::size_t {
    sharing,    ///< taking turns on cores; only a loss, measured as `computing`
    computing,  ///< forward and backward
    data,       ///< waiting for batches
    copying,    ///< waiting for copies of samples to the GPU
    reducing,   ///< summing gradients, if not hidden behind backward
    waiting,    ///< waiting for the slowest rank
    updating,   ///< the optimizer
    saving,     ///< checkpoints
    other,      ///< everything else
    count,
};
std::string_view step_part_name(StepPart part);  ///< name for tables: "exposed all-reduce"

/// Seconds by StepPart.
struct StepParts : std::array<double, static_cast<std::size_t>(StepPart::count)> {
    using array::operator[];
    /// Returns the seconds of `part`.
    double& operator[](StepPart part) { return (*this)[static_cast<std::size_t>(part)]; }
    /// Returns the seconds of `part`.
    double operator[](StepPart part) const { return (*this)[static_cast<std::size_t>(part)]; }
};

/// Returns a step's phases as parts; the sum is the same.
StepParts parts_of(const PhaseSeconds& phases);

/// The time of the same work on one number of ranks.
struct ScalePoint {
    int ranks = 1;
    double seconds = 0;  ///< seconds of a step, an epoch or a training, the same for every point
    double error_s = 0;  ///< standard error of `seconds`; 0: unknown
    /// Number of ranks that its cores can compute for at a time; no bound if each rank has its own
    /// cores.
    double room = std::numeric_limits<double>::infinity();
    std::optional<StepParts> parts{};  ///< mean over the ranks, in seconds; they sum to `seconds`

    /// Returns the ranks that compute at a time.
    double at_once() const { return std::min<double>(ranks, room); }
    double turns() const { return ranks / at_once(); }  ///< ranks per computing rank
};

/// A point compared with the smallest number of ranks measured.
struct ScaleRow {
    ScalePoint point;
    double speedup = 1;     ///< ratio of times
    double ideal_s = 0;     ///< seconds if the time were inverse to the number of ranks
    double efficiency = 1;  ///< ideal_s / seconds
    /// Causes of 1 - efficiency: each part's excess over the smallest number's part divided by the
    /// ratio of ranks, as a share of `seconds`. They sum to 1 - efficiency; a negative one is a
    /// gain. Known if both points have parts.
    std::optional<StepParts> losses{};
};

/// Returns `point` compared with `base`, the smallest number of ranks.
ScaleRow scale_row(const ScalePoint& base, const ScalePoint& point);

/// Returns one row for each point, by ranks. `points` is not empty, and all differ in ranks.
std::vector<ScaleRow> scale_table(std::vector<ScalePoint> points);

/// The terms of a time as a function of ranks P, each with its own factor.
enum class ScaleTerm : std::size_t {
    work,    ///< 1/P
    fixed,   ///< 1: not divided among ranks (Amdahl's serial part)
    hops,    ///< log2 P: successive messages, as in a tree
    bytes,   ///< (P-1)/P: data sent by a rank in a ring's reduction and distribution
    spread,  ///< sqrt(2 ln P): lag of the slowest of P ranks if times scatter
};
std::string_view scale_term_name(ScaleTerm term);  ///< the enumerator's name

/// One term of a model.
struct FittedTerm {
    StepPart part = StepPart::computing;
    ScaleTerm term = ScaleTerm::work;
    double seconds = 0;  ///< the factor, not negative
};

/// T(P), as a sum of terms for each part, or for the whole if parts are unknown. Each rank has its
/// own cores.
struct ScaleModel {
    std::vector<FittedTerm> terms;
    bool has_parts = false;
    double misfit = 0;  ///< root mean square of the relative differences between points and model

    /// Returns the time on `ranks`.
    ScalePoint at(int ranks) const;
};

/// Fits factors by least squares relative to the points' times, none below 0. `points` is not
/// empty, and none has ranks that share cores.
ScaleModel fit_scale_model(std::span<const ScalePoint> points);

/// The forecast for a number of ranks.
struct ScaleForecast {
    ScaleRow row;                    ///< row of the model
    double least_s = 0, most_s = 0;  ///< see forecast_scale()
    double least_efficiency = 0, most_efficiency = 0;
};

/// Returns the forecast by the model of `points`. Its band covers the models of all points but one,
/// and those of other terms that fit as well. It is widened by the largest of the differences
/// between points and model (Student's 95 %), twice the points' own errors, and 5 %; few points
/// give a wide band. `points` as for fit_scale_model().
ScaleForecast forecast_scale(std::span<const ScalePoint> points, int ranks);

/// The number of ranks that is worthwhile. Figure 8.1 asks whether to distribute at all.
struct ScaleAdvice {
    int ranks = 1;                   ///< one of the measured numbers
    std::optional<int> worth_a_try;  ///< more than `ranks`, by the forecast
    /// The next larger measured number of ranks that is not worthwhile.
    std::optional<int> not_worth;
    bool not_worth_is_slower = false;  ///< it is slower; else it is not efficient enough
};

/// Returns the largest number of ranks that is at least `least_efficiency` efficient and faster
/// than every smaller number by more than the errors. `rows` as scale_table() returns them.
ScaleAdvice advise_scale(std::span<const ScaleRow> rows,
                         std::span<const ScaleForecast> forecasts,
                         double least_efficiency);

/// Returns the part with the largest loss, if any has one.
std::optional<StepPart> largest_loss(const ScaleRow& row);

/// Returns `parts`, which sum to `whole`, in whole units, of which there are `units` in 1. They are
/// rounded so that they sum to the rounded `whole`.
std::vector<std::int64_t> rounded_parts(std::span<const double> parts, double whole, double units);

/// Returns the point of a run, with the seconds of a step. The number of ranks that compute at a
/// time follows from their cores. Errors: E420 if the run kept no steps.
ScalePoint scale_point(const RunFigures& run);

/// Checks that all runs do the same work: model, data, batch, and other settings that decide its
/// time. Errors: E421 naming the differences.
void check_same_work(std::span<const RunFigures> runs);

/// Returns the settings that decide bits and differ between `runs`, but not the amount of work.
std::vector<std::string> other_differences(std::span<const RunFigures> runs);

}  // namespace lockstep
