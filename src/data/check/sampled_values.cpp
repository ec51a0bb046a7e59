// SPDX-License-Identifier: Apache-2.0
#include "sampled_values.hpp"

#include "lockstep/core/numbers.hpp"

#include "format/labels.hpp"
#include "stream/block_reader.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{8} << 20;
constexpr std::uint64_t large_block = std::uint64_t{8} << 20;
constexpr std::uint64_t most_buffer_bytes = std::uint64_t{512} << 20;

// Returns the decoded size of the largest block; all tiles of one band count together.
std::uint64_t largest_block(const DatasetIndex& index, std::size_t field) {
    std::uint64_t largest = 0;
    for (const StoredBlock& block : index.stored_blocks(field)) {
        const Cut* cut = index.cut_of(block);
        largest = std::max(largest, block.decoded_bytes * (cut ? cut->tiles() : 1));
    }
    return largest;
}

struct Places {
    std::uint64_t count = 1, rows = 1;  ///< rows at each
};

Places places_of(std::uint64_t rows, std::uint64_t row_bytes, std::uint64_t block_bytes) {
    if (rows * row_bytes <= most_bytes) return {1, rows};
    const std::uint64_t count = std::min<std::uint64_t>(rows, block_bytes > large_block ? 4 : 16);
    return {count, std::clamp<std::uint64_t>(most_bytes / count / row_bytes, 1, rows / count)};
}

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

std::span<const std::byte> SampledRows::row(std::uint64_t number) const {
    const std::size_t row_bytes = bytes.size() / rows;
    return std::span(bytes).subspan(number * row_bytes, row_bytes);
}

std::optional<SampledRows> sample_rows(const std::shared_ptr<const DatasetIndex>& index,
                                       std::size_t field) {
    const Field& described = index->fields()[field];
    const std::uint64_t row_bytes = described.bytes_per_sample();
    const std::uint64_t block_bytes = largest_block(*index, field);
    if (std::max(row_bytes, block_bytes) > most_buffer_bytes) return {};
    const Places places = places_of(index->samples(), row_bytes, block_bytes);
    SampledRows sample{.type = described.type,
                       .shape = described.shape,
                       .rows = places.count * places.rows,
                       .of = index->samples()};
    sample.bytes.resize(sample.rows * row_bytes);
    ShardFiles files(index, Access::scattered);
    BlockReader reader(files, field);
    for (std::uint64_t i = 0; i < places.count; ++i)
        reader.read_rows(
            field,
            i * index->samples() / places.count,
            places.rows,
            std::span(sample.bytes).subspan(i * places.rows * row_bytes, places.rows * row_bytes));
    return sample;
}

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

std::map<std::int64_t, std::uint64_t> whole_counts(const SampledRows& sample, std::size_t most) {
    std::map<std::int64_t, std::uint64_t> counts;
    if (!is_whole(sample.type)) return counts;
    for (std::size_t i = 0; i < sample.bytes.size() / element_bytes(sample.type); ++i) {
        ++counts[label_at(sample.type, sample.bytes, i)];
        if (counts.size() > most) return {};
    }
    return counts;
}

}  // namespace lockstep
