// SPDX-License-Identifier: Apache-2.0
// Giving each rank its best GPU in turn is not the best for all: the first takes the one that the
// second needed. Rows are ranks, columns are what they may get:
//
//               A    B                       in turn    0-A, 1-B    1 + 100
//     rank 0    1    2                       together   0-B, 1-A    2 + 1
//     rank 1    1  100
//
// So the least sum is searched: one row after another is added by the shortest path of exchanges,
// where prices on rows and columns keep all costs non-negative (H. W. Kuhn, "The Hungarian method
// for the assignment problem", 1955; in the form with shortest augmenting paths). Beyond most_exact
// rows, where that would take long, each row takes the cheapest column left.
//
// What must never happen: equal nodes give unequal answers. Many costs are equal, and which of the
// equal sums a search finds first is an accident of its steps. So every cost gets a second digit,
// the squared distance from the diagonal, in units too small to outweigh a first digit
// (with_order): straight beats crossed, and the answer is the one a person would write down.
//
// Tested: cluster/placement/matching_test.cpp (against all permutations; order among equals).

#include "matching.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

using Costs = std::vector<std::vector<std::int64_t>>;

constexpr std::size_t most_exact = 16;

/// Costs that first compare as given, then by how far a pair is off the diagonal: squares make
/// crossing pairs dearer than straight ones.
Costs with_order(const Costs& costs) {
    const auto rows = static_cast<std::int64_t>(costs.size());
    const auto columns = static_cast<std::int64_t>(costs.front().size());
    const auto scale = rows * columns * columns + 1;
    Costs ordered = costs;
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t c = 0; c < columns; ++c) {
            auto& cost = ordered[static_cast<std::size_t>(r)][static_cast<std::size_t>(c)];
            cost = cost * scale + (r - c) * (r - c);
        }
    return ordered;
}

/// Potentials and the pairs so far; row and column 0 stand for none.
struct Matching {
    std::vector<std::int64_t> row_price, column_price;
    std::vector<std::size_t> row_of, before;
};

/// One step of Dijkstra's search from `column`: the nearest column not yet seen.
std::size_t extend(const Costs& costs,
                   Matching& m,
                   std::size_t column,
                   std::vector<std::int64_t>& distance,
                   std::vector<char>& is_seen) {
    const auto row = m.row_of[column];
    auto step = std::numeric_limits<std::int64_t>::max();
    std::size_t nearest = 0;
    for (std::size_t c = 1; c < distance.size(); ++c) {
        if (is_seen[c]) continue;
        const auto reduced = costs[row - 1][c - 1] - m.row_price[row] - m.column_price[c];
        if (reduced < distance[c]) {
            distance[c] = reduced;
            m.before[c] = column;
        }
        if (distance[c] < step) {
            step = distance[c];
            nearest = c;
        }
    }
    // Prices move by the step, so that the nearest column now costs nothing and no other becomes
    // negative: the next search may again take the shortest way first.
    for (std::size_t c = 0; c < distance.size(); ++c) {
        if (!is_seen[c]) {
            distance[c] -= step;
            continue;
        }
        m.row_price[m.row_of[c]] += step;
        m.column_price[c] -= step;
    }
    return nearest;
}

void add_row(const Costs& costs, Matching& m, std::size_t row) {
    std::vector<std::int64_t> distance(m.row_of.size(),
                                       std::numeric_limits<std::int64_t>::max() / 2);
    std::vector<char> is_seen(m.row_of.size(), 0);
    m.row_of[0] = row;
    std::size_t column = 0;
    do {
        is_seen[column] = 1;
        column = extend(costs, m, column, distance, is_seen);
    } while (m.row_of[column] != 0);
    // Each row on the way gives its column to the one before it.
    for (; column != 0; column = m.before[column]) m.row_of[column] = m.row_of[m.before[column]];
}

std::vector<int> exact(const Costs& costs) {
    const auto rows = costs.size(), columns = costs.front().size();
    Matching m{std::vector<std::int64_t>(rows + 1),
               std::vector<std::int64_t>(columns + 1),
               std::vector<std::size_t>(columns + 1),
               std::vector<std::size_t>(columns + 1)};
    for (std::size_t row = 1; row <= rows; ++row) add_row(costs, m, row);
    std::vector<int> column_of(rows);
    for (std::size_t c = 1; c <= columns; ++c)
        if (m.row_of[c] != 0) column_of[m.row_of[c] - 1] = static_cast<int>(c - 1);
    return column_of;
}

std::vector<int> greedy(const Costs& costs) {
    std::vector<int> column_of;
    for (const auto& row : costs) {
        int best = -1;
        for (int c = 0; c < static_cast<int>(row.size()); ++c) {
            const bool is_taken = std::ranges::find(column_of, c) != column_of.end();
            if (is_taken) continue;
            if (best < 0 || row[static_cast<std::size_t>(c)] < row[static_cast<std::size_t>(best)])
                best = c;
        }
        column_of.push_back(best);
    }
    return column_of;
}

}  // namespace

std::vector<int> cheapest_pairs(const Costs& costs) {
    if (costs.empty()) return {};
    expect(costs.size() <= costs.front().size(), "there is a column for each row");
    const auto ordered = with_order(costs);
    return costs.size() <= most_exact ? exact(ordered) : greedy(ordered);
}

}  // namespace lockstep
