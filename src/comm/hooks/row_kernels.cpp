// SPDX-License-Identifier: Apache-2.0
#include "hooks/row_kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace lockstep {
namespace {

/// Sums in flight: what the compiler turns into vectors.
constexpr std::size_t lanes = 16;

double exact_dot(std::span<const float> a, std::span<const float> b) {
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) total += static_cast<double>(a[i]) * b[i];
    return total;
}

double norm(std::span<const float> row) {
    return std::sqrt(exact_dot(row, row));
}

}  // namespace

float dot(std::span<const float> a, std::span<const float> b) {
    const std::size_t whole = a.size() / lanes * lanes;
    std::array<float, lanes> totals{};
    for (std::size_t i = 0; i < whole; i += lanes)
        for (std::size_t lane = 0; lane < lanes; ++lane) totals[lane] += a[i + lane] * b[i + lane];
    for (std::size_t i = whole; i < a.size(); ++i) totals[i - whole] += a[i] * b[i];
    return std::accumulate(totals.begin(), totals.end(), 0.0f);
}

void add_scaled(std::span<float> into, std::span<const float> from, float factor) {
    for (std::size_t i = 0; i < into.size(); ++i) into[i] += factor * from[i];
}

bool all_finite(std::span<const float> values) {
    return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

void orthonormalise(std::span<float> rows, std::size_t row_count) {
    constexpr double rounding = 1e-5;  // what is left of a dependent row is noise below this
    const std::size_t size = rows.size() / row_count;
    const auto row = [&](std::size_t index) { return rows.subspan(index * size, size); };
    for (std::size_t k = 0; k < row_count; ++k) {
        const double before = norm(row(k));
        for (int pass = 0; pass < 2; ++pass)
            for (std::size_t j = 0; j < k; ++j)
                add_scaled(row(k), row(j), static_cast<float>(-exact_dot(row(k), row(j))));
        const double after = norm(row(k));
        const double factor = after > rounding * before ? 1 / after : 0;
        for (float& value : row(k)) value = static_cast<float>(value * factor);
    }
}

}  // namespace lockstep
