// SPDX-License-Identifier: Apache-2.0
#include "task/class_loss.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"
#include "lockstep/core/split.hpp"

#include <numeric>
#include <vector>

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

namespace lockstep {
namespace {

std::vector<float> balanced_weights(const Field& field) {
    const auto& counts = field.class_counts;
    const auto all =
        static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::uint64_t{0}));
    std::vector<float> weights;
    for (const std::uint64_t count : counts)
        weights.push_back(count == 0
                              ? 0.0F
                              : static_cast<float>(all / (static_cast<double>(counts.size()) *
                                                          static_cast<double>(count))));
    return weights;
}

std::vector<float> given_weights(const std::string& text, const Field& field) {
    std::vector<float> weights;
    bool are_numbers = true;
    for (const std::string& item : split(text, ',')) {
        const auto number = parse_real(item);
        are_numbers = are_numbers && number && *number >= 0;
        weights.push_back(static_cast<float>(number.value_or(0)));
    }
    check(are_numbers && weights.size() == field.class_counts.size(), [&] {
        return Error(
            "E103",
            fmt::format("--class-weights is '{}'", printable(text)),
            fmt::format("it must be none, balanced, or {} numbers of 0 or more", field.classes()),
            "give one weight for each class, with commas between");
    });
    bool has_weight = false;
    for (std::size_t i = 0; i < weights.size(); ++i)
        has_weight = has_weight || (weights[i] > 0 && field.class_counts[i] > 0);
    check(has_weight, [&] {
        return Error("E103",
                     fmt::format("--class-weights is '{}'", printable(text)),
                     "all classes that occur have the weight 0: nothing would be learned",
                     "give those that count a weight above 0");
    });
    return weights;
}

std::string csv_cell(const std::string& text) {
    if (text.find_first_of(",\"\n") == text.npos) return text;
    std::string quoted = "\"";
    for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
    return quoted + '"';
}

std::string class_name(const Field& field, std::size_t number) {
    return number < field.class_names.size() ? csv_cell(field.class_names[number])
                                             : fmt::format("{}", number);
}

}  // namespace

ClassLoss::ClassLoss(const TaskSettings& settings, const Field& field)
    : smoothing_(settings.label_smoothing) {
    const std::string& text = settings.class_weights;
    if (text != "none")
        weights_ = torch::tensor(text == "balanced" ? balanced_weights(field)
                                                    : given_weights(text, field));
}

at::Tensor ClassLoss::weights_for(const at::Tensor& logits) const {
    return weights_.defined() ? weights_.to(logits.device()) : weights_;
}

at::Tensor ClassLoss::sum(const at::Tensor& logits, const at::Tensor& classes) const {
    return at::cross_entropy_loss(
        logits, classes, weights_for(logits), at::Reduction::Sum, -100, smoothing_);
}

at::Tensor ClassLoss::of_each(const at::Tensor& logits, const at::Tensor& classes) const {
    return at::cross_entropy_loss(
        logits, classes, weights_for(logits), at::Reduction::None, -100, smoothing_);
}

at::Tensor confusion_counts(const at::Tensor& classes,
                            const at::Tensor& found,
                            std::int64_t number) {
    const at::Tensor cells = (classes * number + found).flatten();
    const std::int64_t count = number * number;
    if (cells.is_cpu()) return at::bincount(cells, {}, count);
    // The host would wait for bincount's number of bins. Whole numbers have one sum in any order.
    return at::zeros({count}, cells.options()).scatter_add_(0, cells, at::ones_like(cells));
}

std::string confusion_csv(std::span<const std::int64_t> counts, const Field& field) {
    const auto number = static_cast<std::size_t>(field.classes());
    std::string text = "class";
    for (std::size_t found = 0; found < number; ++found) text += ',' + class_name(field, found);
    for (std::size_t one = 0; one < number; ++one) {
        text += '\n' + class_name(field, one);
        for (const std::int64_t count : counts.subspan(one * number, number))
            text += fmt::format(",{}", count);
    }
    return text + '\n';
}

}  // namespace lockstep
