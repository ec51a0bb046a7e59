// SPDX-License-Identifier: Apache-2.0
#include "tune/comparison.hpp"

#include "lockstep/core/error.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

double half_spread(std::span<const double> values) {
    const auto [least, most] = std::ranges::minmax(values);
    const double middle = median_of({values.begin(), values.end()});
    return middle > 0 ? (most - least) / (2 * middle) : 0;
}

}  // namespace

double median_of(std::vector<double> values) {
    expect(!values.empty(), "there is a median");
    std::ranges::sort(values);
    const std::size_t middle = values.size() / 2;
    return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

SpeedUp speed_up(std::span<const double> before, std::span<const double> after) {
    expect(before.size() == after.size() && !before.empty(), "rounds come in pairs");
    std::vector<double> rounds;
    for (std::size_t i = 0; i < before.size(); ++i) rounds.push_back(before[i] / after[i]);
    const auto [least, most] = std::ranges::minmax(rounds);
    return {.median = median_of(rounds),
            .least = least,
            .most = most,
            .noise = half_spread(before) + half_spread(after)};
}

std::string speed_up_text(const SpeedUp& found) {
    return fmt::format(
        "{:.2f} times as fast ({:.2f} to {:.2f})", found.median, found.least, found.most);
}

std::size_t quickest_way(std::span<const std::vector<double>> ways) {
    std::size_t best = 0;
    double gain = 1;
    for (std::size_t i = 1; i < ways.size(); ++i) {
        if (ways[i].size() != ways[0].size() || ways[i].empty()) continue;
        const SpeedUp found = speed_up(ways[0], ways[i]);
        if (!found.is_gain() || found.median <= gain) continue;
        best = i;
        gain = found.median;
    }
    return best;
}

}  // namespace lockstep
