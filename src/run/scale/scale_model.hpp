// SPDX-License-Identifier: Apache-2.0
// Least squares with a few factors that are not negative, by which the model is fitted.
#pragma once

#include <vector>

namespace lockstep {

/// The equations rows[i] * factors = targets[i], to be solved approximately.
struct Equations {
    std::vector<std::vector<double>> rows;  ///< each with one number per factor, at most 8
    std::vector<double> targets;            ///< one for each row
};

/// The factors, none below 0, and the residual.
struct Solution {
    std::vector<double> factors;
    double squares = 0;  ///< sum of the squared differences
};

/// Returns the best factors; among equally good ones those with the fewest above 0, and of these
/// the first ones. It tries each set of factors (Lawson and Hanson, "Solving Least Squares
/// Problems", chapter 23: the solution is the plain one of some subset).
Solution solve_not_negative(const Equations& equations);

}  // namespace lockstep
