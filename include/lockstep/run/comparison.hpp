// SPDX-License-Identifier: Apache-2.0
/// @file
/// Compares two runs: which settings differ, how far apart speed and accuracy are, and whether that
/// is more than the noise of their steps.
#pragma once

#include "lockstep/run/run_figures.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Whom a setting concerns.
enum class SettingKind {
    deciding,  ///< other values are other bits
    contract,  ///< what the bits stand on besides: processor, instruction set, versions
    free,      ///< speed and habits
};

/// A setting with its values in two runs; "" if it has none there.
struct SettingDifference {
    std::string name;
    SettingKind kind = SettingKind::free;
    std::string first{}, second{};  ///< values as text
    std::string first_origin{},
        second_origin{};  ///< "command line", "train.toml:3:1"; "": by default
};

/// Deciding ones first, by name; not where runs lie.
std::vector<SettingDifference> settings_that_differ(const RunRecord& first,
                                                    const RunRecord& second);

/// A mean, and how far it may be off.
struct Scatter {
    double mean = 0;
    double error = 0;        ///< standard error; 0 with too few values
    std::int64_t count = 0;  ///< values
};

/// `values` in order of time, which may hang together: their standard error is that of the means of
/// ten stretches (batch means; Law, "Simulation Modeling and Analysis", 9.5.3).
Scatter scatter_of(std::span<const double> values);

/// Seconds that the steps took, of the first rank that kept some: every rank's are the same. The
/// first of a start is left out, as in mean_step().
Scatter step_scatter(const RunFigures& run);

/// The same of one phase, over all ranks: each step's mean.
Scatter phase_scatter(const RunFigures& run, Phase phase);

/// Whether means differ by more than twice their common standard error; fewer than four values tell
/// nothing.
bool is_beyond_scatter(const Scatter& first, const Scatter& second);

/// Something that was measured now and then.
struct CurvePoint {
    double at = 0;  ///< samples or updates
    double value = 0;
};

/// The figure called `name` of the evaluations of `run`, by updates times `samples_each`.
std::vector<CurvePoint> evaluation_curve(const RunFigures& run,
                                         const std::string& name,
                                         double samples_each);

/// The value at `at`, on a straight line between the points next to it. A point not more than a
/// hundredth away stands for it. Nothing beyond the curve's ends.
std::optional<double> value_at(std::span<const CurvePoint> curve, double at);

/// Values of two curves as far along as both go.
struct CurveGap {
    double at = 0;
    double first = 0, second = 0;
    double difference() const { return second - first; }  ///< above 0: the second is higher
};

/// Nothing if there is no place that both reach.
std::optional<CurveGap> curve_gap(std::span<const CurvePoint> first,
                                  std::span<const CurvePoint> second);

}  // namespace lockstep
