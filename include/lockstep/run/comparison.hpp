// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares two runs: the settings that differ, the differences in speed and accuracy, and whether
/// they exceed the noise of the steps.
#pragma once

#include "lockstep/run/run_figures.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
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

/// Returns the differences, deciding settings first, by name; paths of runs are left out.
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

}  // namespace lockstep
