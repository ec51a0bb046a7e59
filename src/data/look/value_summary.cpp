// SPDX-License-Identifier: Apache-2.0
#include "value_summary.hpp"

#include "lockstep/core/numbers.hpp"

#include "format/labels.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

template <class Value>
double typed_value(std::span<const std::byte> rows, std::size_t i) {
    Value value;
    std::memcpy(&value, rows.data() + i * sizeof value, sizeof value);
    return static_cast<double>(value);
}

std::string number_text(double value) {
    constexpr double exact = 1e15;
    if (value == std::floor(value) && std::abs(value) < exact)
        return fmt::format("{:.0f}", value == 0 ? 0 : value);
    return fmt::format("{:.4g}", value);
}

}  // namespace

double value_at(ElementType type, std::span<const std::byte> rows, std::size_t i) {
    switch (type) {
        case ElementType::u8:
            return typed_value<std::uint8_t>(rows, i);
        case ElementType::i32:
            return typed_value<std::int32_t>(rows, i);
        case ElementType::i64:
            return typed_value<std::int64_t>(rows, i);
        case ElementType::f32:
            return typed_value<float>(rows, i);
        case ElementType::f64:
            return typed_value<double>(rows, i);
    }
    return 0;
}

ValueSummary summary_of(const SampledRows& sample) {
    ValueSummary summary;
    const std::size_t values = sample.bytes.size() / element_bytes(sample.type);
    double sum = 0;
    for (std::size_t i = 0; i < values; ++i) {
        const double value = value_at(sample.type, sample.bytes, i);
        if (!std::isfinite(value)) {
            ++summary.not_finite;
            continue;
        }
        summary.least = summary.count == 0 ? value : std::min(summary.least, value);
        summary.most = summary.count == 0 ? value : std::max(summary.most, value);
        ++summary.count;
        summary.are_whole = summary.are_whole && value == std::floor(value);
        sum += value;
    }
    if (summary.count > 0) summary.mean = sum / static_cast<double>(summary.count);
    return summary;
}

bool is_one_hot(const SampledRows& sample) {
    if (sample.shape.size() != 1 || sample.shape[0] < 2) return false;
    const auto places = static_cast<std::size_t>(sample.shape[0]);
    for (std::uint64_t row = 0; row < sample.rows; ++row) {
        std::size_t ones = 0, zeros = 0;
        for (std::size_t i = 0; i < places; ++i) {
            const double value = value_at(sample.type, sample.row(row), i);
            ones += value == 1 ? 1 : 0;
            zeros += value == 0 ? 1 : 0;
        }
        if (ones != 1 || zeros != places - 1) return false;
    }
    return sample.rows > 0;
}

std::string range_text(const ValueSummary& summary) {
    std::string text = summary.count == 0 ? "no finite number"
                                          : fmt::format("{} .. {}, mean {}",
                                                        number_text(summary.least),
                                                        number_text(summary.most),
                                                        number_text(summary.mean));
    if (summary.not_finite > 0) text += fmt::format(", {} not finite", grouped(summary.not_finite));
    return text;
}

std::map<std::int64_t, std::uint64_t> whole_counts(const SampledRows& sample) {
    constexpr std::size_t most = 1000;
    std::map<std::int64_t, std::uint64_t> counts;
    if (!is_whole(sample.type)) return counts;
    for (std::size_t i = 0; i < sample.bytes.size() / element_bytes(sample.type); ++i) {
        ++counts[label_at(sample.type, sample.bytes, i)];
        if (counts.size() > most) return {};
    }
    return counts;
}

}  // namespace lockstep
