// SPDX-License-Identifier: Apache-2.0
// Least squares with factors that are not negative, for a handful of them.
#pragma once

#include <vector>

namespace lockstep {

/// rows[i] * factors is to be near targets[i].
struct Equations {
    std::vector<std::vector<double>> rows;  ///< each as long as there are factors, at most 8
    std::vector<double> targets;            ///< as many as rows
};

/// Factors, none below 0, and what is left.
struct Solution {
    std::vector<double> factors;
    double squares = 0;  ///< sum of the squared differences
};

/// The best factors there are; of several that are as good, those with the fewest above 0, and of
/// these the ones that stand first. With so few it tries each set of them (Lawson and Hanson,
/// "Solving Least Squares Problems", chapter 23: the solution is the plain one of some subset).
Solution solve_not_negative(const Equations& equations);

}  // namespace lockstep
