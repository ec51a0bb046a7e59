// SPDX-License-Identifier: Apache-2.0
#include "scale/least_squares.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace lockstep {
namespace {

using Matrix = std::vector<std::vector<double>>;  // each row with its target at the end

constexpr double least_pivot = 1e-10;  // relative: columns that are hardly another's multiple

// Gauss and Jordan, the largest pivot first; nothing where columns depend on each other.
std::optional<std::vector<double>> solve(Matrix rows) {
    const std::size_t count = rows.size();
    for (std::size_t column = 0; column < count; ++column) {
        std::size_t pivot = column;
        for (std::size_t i = column; i < count; ++i)
            if (std::abs(rows[i][column]) > std::abs(rows[pivot][column])) pivot = i;
        if (std::abs(rows[pivot][column]) < least_pivot) return {};
        std::swap(rows[pivot], rows[column]);
        for (std::size_t i = 0; i < count; ++i) {
            if (i == column) continue;
            const double times = rows[i][column] / rows[column][column];
            for (std::size_t j = column; j <= count; ++j) rows[i][j] -= times * rows[column][j];
        }
    }
    std::vector<double> found;
    for (std::size_t i = 0; i < count; ++i) found.push_back(rows[i][count] / rows[i][i]);
    return found;
}

// Columns of length 1 tell dependent ones from small ones.
std::vector<double> lengths_of(const Equations& equations) {
    std::vector<double> lengths(equations.rows.front().size(), 0);
    for (const auto& row : equations.rows)
        for (std::size_t i = 0; i < row.size(); ++i) lengths[i] += row[i] * row[i];
    for (double& length : lengths) length = std::sqrt(length);
    return lengths;
}

double squares_of(const Equations& equations, std::span<const double> factors) {
    double squares = 0;
    for (std::size_t i = 0; i < equations.rows.size(); ++i) {
        double difference = -equations.targets[i];
        for (std::size_t j = 0; j < factors.size(); ++j)
            difference += equations.rows[i][j] * factors[j];
        squares += difference * difference;
    }
    return squares;
}

// The plain solution with the factors of `set`, the others being 0.
std::optional<Solution> solve_set(const Equations& equations,
                                  std::span<const double> lengths,
                                  const std::vector<std::size_t>& set) {
    Matrix normal(set.size(), std::vector<double>(set.size() + 1, 0));
    for (std::size_t k = 0; k < equations.rows.size(); ++k)
        for (std::size_t i = 0; i < set.size(); ++i) {
            const double left = equations.rows[k][set[i]] / lengths[set[i]];
            for (std::size_t j = 0; j < set.size(); ++j)
                normal[i][j] += left * equations.rows[k][set[j]] / lengths[set[j]];
            normal[i].back() += left * equations.targets[k];
        }
    const auto scaled = solve(std::move(normal));
    if (!scaled) return {};
    Solution solution{std::vector<double>(lengths.size(), 0), 0};
    for (std::size_t i = 0; i < set.size(); ++i) {
        if ((*scaled)[i] < 0) return {};
        solution.factors[set[i]] = (*scaled)[i] / lengths[set[i]];
    }
    solution.squares = squares_of(equations, solution.factors);
    return solution;
}

// All sets of columns that are not 0, the small ones first.
std::vector<std::vector<std::size_t>> sets_of(std::span<const double> lengths) {
    std::vector<std::vector<std::size_t>> sets;
    for (unsigned bits = 1; bits < 1u << lengths.size(); ++bits) {
        std::vector<std::size_t> set;
        for (std::size_t i = 0; i < lengths.size(); ++i)
            if ((bits >> i & 1u) != 0) set.push_back(i);
        if (std::ranges::all_of(set, [&](std::size_t i) { return lengths[i] > 0; }))
            sets.push_back(std::move(set));
    }
    std::ranges::stable_sort(sets, {}, &std::vector<std::size_t>::size);
    return sets;
}

}  // namespace

Solution solve_not_negative(const Equations& equations) {
    expect(!equations.rows.empty() && equations.rows.front().size() <= 8, "few factors");
    const std::vector<double> lengths = lengths_of(equations);
    const std::vector<double> none(lengths.size(), 0);
    Solution best{none, squares_of(equations, none)};
    const double as_good = 1e-12 * best.squares;
    for (const auto& set : sets_of(lengths))
        if (auto found = solve_set(equations, lengths, set))
            if (found->squares < best.squares - as_good) best = *std::move(found);
    return best;
}

}  // namespace lockstep
