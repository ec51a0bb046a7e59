// SPDX-License-Identifier: Apache-2.0
#include "report/report_parts.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// Steps from the first to the last that any rank kept, in columns of about equal many.
struct Columns {
    std::int64_t first = 0, last = -1;
    std::size_t count = 0;

    /// Returns the column of step `at`: in floating point, because files may hold any number.
    std::size_t of(std::int64_t at) const {
        const double place = static_cast<double>(at - first) /
                             (static_cast<double>(last - first) + 1) * static_cast<double>(count);
        return std::min(static_cast<std::size_t>(std::max(place, 0.0)), count - 1);
    }
    std::int64_t first_of(std::size_t column) const {
        const double steps = static_cast<double>(last - first) + 1;
        return first + static_cast<std::int64_t>(std::ceil(static_cast<double>(column) * steps /
                                                           static_cast<double>(count)));
    }
};

Columns columns_of(std::span<const RankFigures> ranks) {
    Columns columns{std::numeric_limits<std::int64_t>::max(), -1, 0};
    for (const RankFigures& rank : ranks)
        for (const StepBudget& step : rank.steps) {
            columns.first = std::min(columns.first, step.step);
            columns.last = std::max(columns.last, step.step);
        }
    if (columns.last >= columns.first)
        columns.count = static_cast<std::size_t>(
            std::min(columns.last - columns.first, std::int64_t{ReportLimits::columns} - 1) + 1);
    return columns;
}

/// By column: the mean of a rank's own seconds.
std::vector<double> own_seconds(const RankFigures& rank, const Columns& columns) {
    std::vector<double> sum(columns.count), steps(columns.count);
    for (const StepBudget& step : rank.steps) {
        const std::size_t column = columns.of(step.step);
        sum[column] += step.own_s();
        ++steps[column];
    }
    for (std::size_t i = 0; i < sum.size(); ++i)
        sum[i] = steps[i] > 0 ? sum[i] / steps[i] : unknown;
    return sum;
}

/// Returns the median, of an even number the lower one: of two ranks the quicker is the usual one.
double median_of(std::vector<double> values) {
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    if (values.empty()) return unknown;
    const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Returns the usual time in each column.
std::vector<double> usual_seconds(const std::vector<std::vector<double>>& own) {
    const std::size_t columns = own.front().size();
    if (own.size() == 1) return std::vector<double>(columns, median_of(own.front()));
    std::vector<double> usual(columns);
    for (std::size_t column = 0; column < columns; ++column) {
        std::vector<double> of_ranks;
        for (const auto& rank : own) of_ranks.push_back(rank[column]);
        usual[column] = median_of(std::move(of_ranks));
    }
    return usual;
}

double mean_of(const std::vector<double>& values) {
    double sum = 0, known = 0;
    for (const double value : values)
        if (std::isfinite(value)) {
            sum += value;
            ++known;
        }
    return known > 0 ? sum / known : unknown;
}

/// `row` keeps the larger of what it has and of what one more rank has.
void join(HeatRow& row, const std::vector<double>& own, const std::vector<double>& usual) {
    const auto larger = [](double a, double b) {  // a NaN gives way
        return std::isnan(a) || b > a ? b : a;
    };
    std::vector<double> ratio(own.size());
    for (std::size_t i = 0; i < own.size(); ++i)
        ratio[i] = usual[i] > 0 ? own[i] / usual[i] : unknown;
    row.mean = larger(row.mean, mean_of(ratio));
    for (std::size_t i = 0; i < ratio.size(); ++i) row.ratio[i] = larger(row.ratio[i], ratio[i]);
}

}  // namespace

HeatMap heat_map(std::span<const RankFigures> ranks) {
    const Columns columns = columns_of(ranks);
    HeatMap map{.last_step = columns.last};
    if (columns.count == 0) return map;
    for (std::size_t i = 0; i < columns.count; ++i) map.first_step.push_back(columns.first_of(i));
    std::vector<std::vector<double>> own;
    for (const RankFigures& rank : ranks) own.push_back(own_seconds(rank, columns));
    const std::vector<double> usual = usual_seconds(own);
    const std::size_t each = (ranks.size() + ReportLimits::rows - 1) / ReportLimits::rows;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const int rank = ranks[i].facts.rank;
        if (i % each == 0)
            map.rows.push_back({rank, rank, std::vector<double>(columns.count, unknown), unknown});
        map.rows.back().last = rank;
        join(map.rows.back(), own[i], usual);
    }
    return map;
}

}  // namespace lockstep
