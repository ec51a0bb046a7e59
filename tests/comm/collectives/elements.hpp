// SPDX-License-Identifier: Apache-2.0
// Buffers of any element type, filled with values that no order of summation forgives, and their
// sum written down naively.
#pragma once

#include "lockstep/comm/data_type.hpp"
#include "lockstep/core/random.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace lockstep::test {

/// `count` elements that begin `offset` elements after a 64-byte boundary, between guard bytes.
class Elements {
  public:
    Elements(DataType type, std::size_t count, std::size_t offset)
        : type_(type),
          count_(count),
          begin_(guard + offset * size_of(type)),
          lines_((begin_ + bytes() + guard) / sizeof(Line) + 1) {}

    DataType type() const { return type_; }
    std::size_t count() const { return count_; }
    std::size_t bytes() const { return count_ * size_of(type_); }
    std::byte* data() { return lines_.front().bytes + begin_; }
    const std::byte* data() const { return lines_.front().bytes + begin_; }

    template <class T>
    T at(std::size_t i) const {
        T value;
        std::memcpy(&value, data() + i * sizeof(T), sizeof(T));
        return value;
    }
    template <class T>
    void set(std::size_t i, T value) {
        std::memcpy(data() + i * sizeof(T), &value, sizeof(T));
    }

    /// The same bits.
    bool operator==(const Elements& other) const {
        return type_ == other.type_ && count_ == other.count_ &&
               std::memcmp(data(), other.data(), bytes()) == 0;
    }
    bool is_unharmed_around() const {
        const auto is_guard = [](std::byte b) { return b == Line::untouched; };
        const std::byte* all = lines_.front().bytes;
        return std::all_of(all, all + begin_, is_guard) &&
               std::all_of(data() + bytes(), all + lines_.size() * sizeof(Line), is_guard);
    }

  private:
    struct alignas(64) Line {
        static constexpr std::byte untouched{0x5a};
        std::byte bytes[64];
        Line() { std::fill_n(bytes, sizeof bytes, untouched); }
    };
    static constexpr std::size_t guard = 64;

    DataType type_;
    std::size_t count_, begin_;
    std::vector<Line> lines_;
};

inline float from_brain_float(std::uint16_t value) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

/// To nearest, ties to even, by comparing with both neighbours. For finite values.
inline std::uint16_t to_brain_float(float value) {
    const auto below = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    const auto above = static_cast<std::uint16_t>(below + 1);
    const double under = std::abs(double{value} - double{from_brain_float(below)});
    const double over = std::abs(double{from_brain_float(above)} - double{value});
    if (under != over) return under < over ? below : above;
    return below % 2 == 0 ? below : above;
}

/// Any sign and digits, magnitudes from 2^-20 to 2^19.
inline float hard_float(std::uint64_t seed, int rank, std::size_t index) {
    const std::uint64_t bits = mix64(mix64(seed * 1000 + static_cast<std::uint64_t>(rank)) + index);
    const auto sign_and_digits = static_cast<std::uint32_t>(bits) & 0x807fffffU;
    const auto exponent = static_cast<std::uint32_t>(107 + (bits >> 32) % 40);
    return std::bit_cast<float>(sign_and_digits | exponent << 23);
}

/// What rank `rank` contributes in round `seed`.
inline Elements hard_elements(
    DataType type, std::size_t count, std::size_t offset, std::uint64_t seed, int rank) {
    Elements elements(type, count, offset);
    for (std::size_t i = 0; i < count; ++i) {
        const float value = hard_float(seed, rank, i);
        switch (type) {
            case DataType::float32:
                elements.set(i, value);
                break;
            case DataType::bfloat16:
                elements.set(i, to_brain_float(value));
                break;
            case DataType::float64:
                elements.set(i, value * (1.0 + 1e-12 * rank));
                break;
            case DataType::int64:
                elements.set(i, std::bit_cast<std::int64_t>(double{value}));
                break;
        }
    }
    return elements;
}

/// Element `i` of every input, as `Value` reads it, in the order of `merges_after`.
template <class Sum, class Value>
Sum sum_at(std::span<const int> merges_after, std::size_t inputs, Value&& value) {
    std::array<Sum, 64> stack{};
    std::size_t height = 0;
    for (std::size_t k = 0; k < inputs; ++k) {
        stack[height++] = value(k);
        for (int merges = merges_after[k]; merges > 0; --merges, --height)
            stack[height - 2] = stack[height - 2] + stack[height - 1];
    }
    return stack[0];
}

/// The sum of `inputs`, one element after another.
inline Elements sum_by_elements(std::span<const int> merges_after,
                                std::span<const Elements> inputs) {
    const DataType type = inputs.front().type();
    Elements sum(type, inputs.front().count(), 0);
    const auto sum_as = [&]<class T>(std::size_t i, T) {
        return sum_at<T>(
            merges_after, inputs.size(), [&](std::size_t k) { return inputs[k].at<T>(i); });
    };
    for (std::size_t i = 0; i < sum.count(); ++i) {
        switch (type) {
            case DataType::float32:
                sum.set(i, sum_as(i, float{}));
                break;
            case DataType::float64:
                sum.set(i, sum_as(i, double{}));
                break;
            case DataType::int64:
                sum.set(i, sum_as(i, std::uint64_t{}));
                break;
            case DataType::bfloat16:
                sum.set(i, to_brain_float(sum_at<float>(merges_after, inputs.size(), [&](auto k) {
                            return from_brain_float(inputs[k].template at<std::uint16_t>(i));
                        })));
                break;
        }
    }
    return sum;
}

}  // namespace lockstep::test
