// SPDX-License-Identifier: Apache-2.0
// Least squares with factors that are not negative, for a handful of them, and what a number that
// is no factor must be for the least.
#pragma once

#include <functional>
#include <span>
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

/// Where from `least` to `most` a function with one valley is lowest, to 1e-8 of the distance: by
/// golden section (Kiefer, "Sequential minimax search for a maximum", Proc. AMS 4(3), 1953).
double lowest_between(double least, double most, const std::function<double(double)>& function);

}  // namespace lockstep
