// SPDX-License-Identifier: Apache-2.0
// Whether one of two ways is quicker, or it only looked so.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// Of times taken in turns: how many times as fast the second way is.
struct SpeedUp {
    double median = 1, least = 1, most = 1;  ///< of the rounds
    double noise = 0;                        ///< how much of it the times' own spread can explain

    /// Every round says so, and by more than the noise.
    bool is_gain() const { return least > 1 && median - 1 > noise; }
};

/// Seconds of the two ways, round by round; at least one round. The noise is half of what each
/// way's own times spread, by its median, both added.
SpeedUp speed_up(std::span<const double> before, std::span<const double> after);

/// The middle one, or the mean of the two in the middle.
double median_of(std::vector<double> values);

/// "1.42 times as fast (1.38 to 1.45)".
std::string speed_up_text(const SpeedUp& found);

/// The index in `ways` of the way that is the quickest beyond the noise; 0, the first, where none
/// is. Each way's seconds, round by round; a way with fewer rounds was not possible.
std::size_t quickest_way(std::span<const std::vector<double>> ways);

}  // namespace lockstep
