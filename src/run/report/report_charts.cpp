// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error.hpp"
#include "lockstep/core/split.hpp"
#include "lockstep/run/log_text.hpp"

#include "report/report_words.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <ranges>
#include <span>
#include <utility>

namespace lockstep {
namespace {

struct Sample {
    std::int64_t step = 0;
    double value = 0;
};

ReportPoint point_of(std::span<const Sample> part) {
    ReportPoint point{part.back().step, 0, part.front().value, part.front().value};
    for (const Sample& sample : part) {
        point.value += sample.value / static_cast<double>(part.size());
        point.least = std::min(point.least, sample.value);
        point.most = std::max(point.most, sample.value);
    }
    return point;
}

ReportCurve curve_of(CurveSource source, std::string name, std::vector<Sample> samples) {
    std::erase_if(samples, [](const Sample& sample) { return !std::isfinite(sample.value); });
    std::ranges::stable_sort(samples, {}, &Sample::step);
    ReportCurve curve{.source = source, .name = std::move(name)};
    if (samples.empty()) return curve;
    const std::size_t each = (samples.size() + ReportLimits::points - 1) / ReportLimits::points;
    const std::span<const Sample> all(samples);
    for (std::size_t i = 0; i < all.size(); i += each)
        curve.points.push_back(point_of(all.subspan(i, std::min(each, all.size() - i))));
    const auto [low, high] = std::ranges::minmax_element(all, {}, &Sample::value);
    curve.last = all.back().value;
    curve.best_low = low->value;
    curve.low_step = low->step;
    curve.best_high = high->value;
    curve.high_step = high->step;
    return curve;
}

template <class Value>
ReportCurve curve_of_reports(const RunFigures& run, const char* name, Value&& value) {
    std::vector<Sample> samples;
    for (const StepsEvent& event : run.reports)
        samples.push_back({event.report.step, value(event.report)});
    return curve_of(CurveSource::reports, name, std::move(samples));
}

/// "test_top5_accuracy" is shown as "top5 accuracy".
std::string title_of(const std::string& figure) {
    std::string title = figure.starts_with("test_") ? figure.substr(5) : figure;
    std::ranges::replace(title, '_', ' ');
    return plain_text(title);
}

void add(std::vector<ReportChart>& charts, ReportChart chart) {
    std::erase_if(chart.curves, [](const ReportCurve& curve) { return curve.points.empty(); });
    if (!chart.curves.empty()) charts.push_back(std::move(chart));
}

constexpr std::size_t most_bytes = std::size_t{4} << 20;  // the table is near the log's beginning

std::string beginning_of(const fs::path& path) {
    const UniqueFd file = open_for_reading(path);
    std::string text(std::min<std::uint64_t>(file_stamp(path).bytes, most_bytes), '\0');
    text.resize(read_at(file.value(), std::as_writable_bytes(std::span(text)), 0, path));
    return text;
}

/// Where the words of a heading begin.
std::vector<std::size_t> word_places(const std::string& line) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < line.size(); ++i)
        if (line[i] != ' ' && (i == 0 || line[i - 1] == ' ')) places.push_back(i);
    return places;
}

std::vector<std::string> cells_of(const std::string& line, const std::vector<std::size_t>& places) {
    std::vector<std::string> cells;
    for (std::size_t i = 0; i < places.size(); ++i) {
        const std::size_t end = i + 1 < places.size() ? places[i + 1] : line.size();
        std::string cell =
            places[i] < line.size() ? line.substr(places[i], end - places[i]) : std::string();
        cell.erase(cell.find_last_not_of(' ') + 1);
        cells.push_back(cell.empty() ? "-" : cell);
    }
    return cells;
}

/// A rank, and more: lines of the log begin with a date.
bool is_row(const std::string& line) {
    const std::size_t end = line.find_first_not_of("0123456789");
    return end > 0 && end != line.npos && line[end] == ' ';
}

/// Leaves out columns in which no rank has anything.
void drop_empty(PlacementTable& table) {
    for (std::size_t i = table.rows.front().size(); i-- > 0;)
        if (std::ranges::all_of(table.rows | std::views::drop(1),
                                [&](const auto& row) { return row[i] == "-"; }))
            for (auto& row : table.rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
}

constexpr double unknown = std::numeric_limits<double>::quiet_NaN();

/// Steps from the first to the last that any rank kept, in columns of about equal many.
struct Columns {
    std::int64_t first = 0, last = -1;
    std::size_t count = 0;

    /// Of step `at`: in floating point, for files may hold any number.
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

/// Of an even number the lower of both: of two ranks the quicker is what is usual.
double lower_median_of(std::vector<double> values) {
    std::erase_if(values, [](double value) { return !std::isfinite(value); });
    if (values.empty()) return unknown;
    const auto middle = values.begin() + (std::ssize(values) - 1) / 2;
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// What is usual in each column.
std::vector<double> usual_seconds(const std::vector<std::vector<double>>& own) {
    const std::size_t columns = own.front().size();
    if (own.size() == 1) return std::vector<double>(columns, lower_median_of(own.front()));
    std::vector<double> usual(columns);
    for (std::size_t column = 0; column < columns; ++column) {
        std::vector<double> of_ranks;
        for (const auto& rank : own) of_ranks.push_back(rank[column]);
        usual[column] = lower_median_of(std::move(of_ranks));
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

std::vector<ReportChart> report_charts(const RunFigures& run) {
    std::map<std::string, std::vector<Sample>> tested;
    for (const EvaluationMetrics& evaluation : run.evaluations)
        for (const auto& [name, value] : evaluation.figures)
            tested[name].push_back({evaluation.step, value});
    std::vector<ReportChart> charts;
    add(charts,
        {ChartKind::loss,
         "loss",
         {curve_of_reports(run, "training", [](const StepReport& at) { return at.loss; }),
          curve_of(CurveSource::evaluations, "test", std::move(tested["test_loss"]))}});
    tested.erase("test_loss");
    for (auto& [name, samples] : tested)
        add(charts,
            {ChartKind::figure,
             "test " + title_of(name),
             {curve_of(CurveSource::evaluations, "test", std::move(samples))}});
    // A rate that never changes is a fact, no curve.
    auto rate = curve_of_reports(run, "rate", [](const StepReport& at) { return at.lr; });
    if (rate.best_low < rate.best_high)
        add(charts, {ChartKind::learning_rate, "learning rate", {std::move(rate)}});
    add(charts,
        {ChartKind::speed,
         "samples per second",
         {curve_of_reports(run, "speed", [](const StepReport& at) { return at.samples_per_s; })}});
    return charts;
}

// Rank 0 prints the placement into its log, as `lockstep map` does:
//
//     2 nodes | 16 ranks x 13 threads
//     rank  node   local  cores   threads  comm  numa  gpu  path  nic
//     0     node0  0      0-13    13       13    0     -    -     -
//     * bound by the launcher, and kept

PlacementTable read_placement(const fs::path& log) try {
    const std::vector<std::string> lines = split(beginning_of(log), '\n');
    const auto heading = std::ranges::find_if(lines, [](const std::string& line) {
        return line.starts_with("rank  node ") && line.find(" cores ") != line.npos;
    });
    PlacementTable table;
    if (heading == lines.end()) return table;
    const auto places = word_places(*heading);
    table.rows.push_back(cells_of(*heading, places));
    if (heading != lines.begin()) table.notes.push_back(heading[-1]);
    auto line = heading + 1;
    for (; line != lines.end() && is_row(*line); ++line)
        table.rows.push_back(cells_of(*line, places));
    for (; line != lines.end() && (line->starts_with("* ") || line->starts_with("warning: "));
         ++line)
        table.notes.push_back(*line);
    drop_empty(table);
    return table;
} catch (const Error&) {
    return {};
}

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
