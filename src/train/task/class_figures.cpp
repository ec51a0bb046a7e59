// SPDX-License-Identifier: Apache-2.0
// Tested: train/task/classification_test.cpp (against pairs counted one by one).
#include "task/class_figures.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include <limits>
#include <numeric>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double most_log_odds = 16;
constexpr double no_figure = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t most_lines = 50, name_letters = 24;

double ratio(std::int64_t part, std::int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : no_figure;
}

double area_of(std::span<const std::int64_t> others, std::span<const std::int64_t> own) {
    double pairs = 0, below = 0, all_own = 0;
    for (std::size_t bin = 0; bin < own.size(); ++bin) {
        const auto here = static_cast<double>(others[bin]), ours = static_cast<double>(own[bin]);
        pairs += ours * (below + here / 2);
        below += here;
        all_own += ours;
    }
    return below > 0 && all_own > 0 ? pairs / (below * all_own) : no_figure;
}

struct OneClass {
    std::int64_t samples = 0;
    double precision = 0, recall = 0, f1 = 0, area = no_figure;
};

std::string share_text(double value) {
    return value == value ? fmt::format("{:.4f}", value) : "-";
}

std::string table_of(const std::vector<OneClass>& classes, const Field& field, bool has_area) {
    std::string text = fmt::format("{:<{}} {:>9} {:>9} {:>9} {:>9}{}\n",
                                   "class",
                                   name_letters,
                                   "samples",
                                   "precision",
                                   "recall",
                                   "F1",
                                   has_area ? "       AUC" : "");
    for (std::size_t i = 0; i < std::min(classes.size(), most_lines); ++i) {
        const OneClass& one = classes[i];
        const std::string name = i < field.class_names.size()
                                     ? fmt::format("{} {}", i, printable(field.class_names[i]))
                                     : std::to_string(i);
        text += fmt::format("{:<{}} {:>9} {:>9} {:>9} {:>9}{}\n",
                            name.substr(0, name_letters),
                            name_letters,
                            grouped(static_cast<std::uint64_t>(one.samples)),
                            share_text(one.precision),
                            share_text(one.recall),
                            share_text(one.f1),
                            has_area ? fmt::format(" {:>9}", share_text(one.area)) : "");
    }
    if (classes.size() > most_lines)
        text += fmt::format("and {} more classes; --confusion FILE has all\n",
                            classes.size() - most_lines);
    return text;
}

void add_mean(std::map<std::string, double>& means,
              const char* name,
              const std::vector<OneClass>& classes,
              double OneClass::*figure) {
    double sum = 0;
    int count = 0;
    for (const OneClass& one : classes)
        if (one.*figure == one.*figure) {
            sum += one.*figure;
            ++count;
        }
    means[name] = count > 0 ? sum / count : no_figure;
}

}  // namespace

at::Tensor score_counts(const at::Tensor& logits, const at::Tensor& labels) {
    const std::int64_t classes = logits.size(1), count = score_bins(classes);
    const at::Tensor shares = at::log_softmax(logits.to(at::kDouble), 1);
    const at::Tensor odds = (shares - at::log1p(-shares.exp())).nan_to_num(-most_log_odds);
    const at::Tensor bins =
        ((odds + most_log_odds) * (static_cast<double>(count) / (2 * most_log_odds)))
            .clamp(0, count - 1)
            .to(at::kLong);
    const at::Tensor numbers = at::arange(classes, labels.options());
    const at::Tensor is_own = labels.unsqueeze(1).eq(numbers).to(at::kLong);
    const at::Tensor cells = ((numbers * 2 + is_own) * count + bins).flatten();
    return at::zeros({classes * 2 * count}, cells.options())
        .scatter_add_(0, cells, at::ones_like(cells));
}

ClassFigures class_figures(std::span<const std::int64_t> confusion,
                           std::span<const std::int64_t> scores,
                           const Field& field) {
    const auto number = static_cast<std::size_t>(field.classes());
    std::vector<OneClass> classes(number);
    std::vector<std::int64_t> found(number);
    for (std::size_t i = 0; i < number * number; ++i) {
        classes[i / number].samples += confusion[i];
        found[i % number] += confusion[i];
    }
    for (std::size_t c = 0; c < number; ++c) {
        OneClass& one = classes[c];
        const std::int64_t right = confusion[c * number + c];
        one.precision = ratio(right, found[c]);
        one.recall = ratio(right, one.samples);
        one.f1 = ratio(2 * right, one.samples + found[c]);
        if (scores.empty()) continue;
        const auto bins = static_cast<std::size_t>(score_bins(field.classes()));
        one.area =
            area_of(scores.subspan(2 * c * bins, bins), scores.subspan((2 * c + 1) * bins, bins));
    }
    ClassFigures figures;
    add_mean(figures.means, "f1", classes, &OneClass::f1);
    if (!scores.empty()) add_mean(figures.means, "auc", classes, &OneClass::area);
    figures.table = table_of(classes, field, !scores.empty());
    return figures;
}

}  // namespace lockstep
