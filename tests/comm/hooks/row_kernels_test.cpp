// SPDX-License-Identifier: Apache-2.0
#include "hooks/row_kernels.hpp"

#include "lockstep/core/random.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

std::vector<float> any_floats(std::size_t count) {
    CounterRandom random(Purpose::test, {*rc::gen::arbitrary<std::uint64_t>()});
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(2 * random.uniform() - 1);
    return values;
}

RC_GTEST_PROP(RowKernels, DotIsTheSumOfProducts, ()) {
    const auto count = *rc::gen::inRange<std::size_t>(0, 200);
    const std::vector<float> a = any_floats(count), b = any_floats(count);
    double expected = 0;
    for (std::size_t i = 0; i < count; ++i) expected += static_cast<double>(a[i]) * b[i];
    RC_ASSERT(std::abs(dot(a, b) - expected) < 1e-5);
}

RC_GTEST_PROP(RowKernels, RowsBecomeOrthonormalOrZeroAndSpanTheSame, ()) {
    const auto size = *rc::gen::inRange<std::size_t>(1, 100);
    const auto count = *rc::gen::inRange<std::size_t>(1, 8);
    std::vector<float> rows = any_floats(size * count);
    const std::vector<float> original = rows;
    orthonormalise(rows, count);
    const auto row = [&](std::size_t k) {
        return std::span<const float>(rows).subspan(k * size, size);
    };
    for (std::size_t k = 0; k < count; ++k) {
        const float length = dot(row(k), row(k));
        RC_ASSERT(length == 0 || std::abs(length - 1) < 1e-5f);
        for (std::size_t j = 0; j < k; ++j) RC_ASSERT(std::abs(dot(row(k), row(j))) < 1e-5f);
        std::vector<float> left(original.begin() + static_cast<std::ptrdiff_t>(k * size),
                                original.begin() + static_cast<std::ptrdiff_t>((k + 1) * size));
        for (std::size_t j = 0; j <= k; ++j) add_scaled(left, row(j), -dot(left, row(j)));
        RC_ASSERT(dot(left, left) < 1e-6f);
    }
}

TEST(RowKernels, MakeDependentRowsZero) {
    std::vector<float> rows = {3, 4, 0, 6, 8, 0, 0, 0, 0, 1e-20f, 0, 1e-20f};
    orthonormalise(rows, 4);
    EXPECT_NEAR(rows[0], 0.6, 1e-6);
    for (std::size_t i = 3; i < 9; ++i) EXPECT_EQ(rows[i], 0.0f);
    EXPECT_NEAR(dot(std::span(rows).last(3), std::span(rows).last(3)), 1, 1e-5);
}

TEST(RowKernels, SeeWhatIsNotFinite) {
    std::vector<float> values(20, 1.0f);
    EXPECT_TRUE(all_finite(values));
    values[19] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(all_finite(values));
    values[19] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(all_finite(values));
}

}  // namespace
