// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/core/random.hpp"

#include "support/mpi_test.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

const std::vector<MatrixShape> shapes = {{40, 30}, {50, 1}, {64, 75}, {3, 4}, {0, 0}};
constexpr int sgd_rank = 3;

std::vector<std::size_t> shape_counts() {
    std::vector<std::size_t> sizes;
    for (const MatrixShape& shape : shapes) sizes.push_back(shape.rows * shape.columns);
    return sizes;
}

float noise(std::uint64_t step, int of_rank, std::size_t index) {
    const auto key = step * 1000 + static_cast<std::uint64_t>(of_rank);
    return static_cast<float>(static_cast<double>(mix64(mix64(key) + index) >> 11) * 0x1p-52 - 1);
}

double norm(std::span<const float> values) {
    double total = 0;
    for (const float value : values) total += static_cast<double>(value) * value;
    return std::sqrt(total);
}

double distance(std::span<const float> a, std::span<const float> b) {
    std::vector<float> difference(a.size());
    std::ranges::transform(a, b, difference.begin(), std::minus<float>());
    return norm(difference);
}

/// All gradients of a model with two buckets, summed by PowerSGD.
struct Compressing {
    FlatLayout layout{shape_counts(), 0, BucketLimits{20000, 20000}};
    std::unique_ptr<AllReduce> carrier = make_all_reduce(ranks(), Algorithm::tree);
    PowerSgdOptions options = {sgd_rank, 7};
    std::unique_ptr<BucketHook> hook = make_power_sgd(layout, shapes, options, *carrier);

    std::vector<float> sum(std::vector<float> values) {
        for (std::size_t b = 0; b < layout.state_bucket(); ++b) {
            const FloatRange range = layout.bucket(b);
            hook->sum(b, std::span(values).subspan(range.begin, range.size()));
        }
        return values;
    }
    std::span<const float> tensor(const std::vector<float>& values, std::size_t index) const {
        const FloatRange range = layout.tensor(index);
        return std::span(values).subspan(range.begin, range.size());
    }
    /// `value(rank, index)` in every tensor; padding is zero.
    template <class Value>
    std::vector<float> gradient(int of_rank, Value&& value) const {
        std::vector<float> values(layout.size());
        for (std::size_t t = 0; t < shapes.size(); ++t)
            for (std::size_t i = 0; i < layout.tensor(t).size(); ++i)
                values[layout.tensor(t).begin + i] = value(of_rank, t, i);
        return values;
    }
    template <class Value>
    std::vector<float> exact_sum(Value&& value) const {
        std::vector<float> total(layout.size());
        for (int r = 0; r < ranks().size(); ++r)
            std::ranges::transform(total, gradient(r, value), total.begin(), std::plus<float>());
        return total;
    }
    /// Collective. What all ranks together have not yet passed on.
    std::vector<float> error_of(std::size_t index) {
        for (const NamedFloats& part : hook->state()) {
            if (part.name != "powersgd.error." + std::to_string(index)) continue;
            std::vector<double> total(part.values.begin(), part.values.end());
            ranks().all_reduce_sum(std::span<double>(total));
            return {total.begin(), total.end()};
        }
        return {};
    }
};

/// Noise of step `step`.
auto noise_of(std::uint64_t step) {
    return [step](int r, std::size_t t, std::size_t i) { return noise(step * 100 + t, r, i); };
}

/// A matrix of PowerSGD's rank, the same on all ranks but for a factor.
float low_rank(int r, std::size_t t, std::size_t i) {
    const std::size_t row = i / shapes[t].columns, column = i % shapes[t].columns;
    float value = 0;
    for (std::uint64_t k = 0; k < sgd_rank; ++k)
        value += noise(k, 50, row) * noise(k, 51, column + 1000);
    return value * static_cast<float>(r + 1);
}

std::string bytes_of(std::span<const float> values) {
    return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

TEST(PowerSgd, IsExactForMatricesOfItsRankEvenInTheFirstStep) {
    Compressing x;
    const std::vector<float> expected = x.exact_sum(low_rank);
    for (int step = 0; step < 4; ++step) {
        const std::vector<float> got = x.sum(x.gradient(ranks().rank(), low_rank));
        EXPECT_LT(distance(got, expected), 1e-4 * norm(expected)) << step;
    }
}

TEST(PowerSgd, PassesOnEverythingInTheEnd) {
    Compressing x;
    std::vector<float> passed(x.layout.size()), all(x.layout.size());
    for (std::uint64_t step = 0; step < 25; ++step) {
        const auto got = x.sum(x.gradient(ranks().rank(), noise_of(step)));
        std::ranges::transform(passed, got, passed.begin(), std::plus<float>());
        std::ranges::transform(all, x.exact_sum(noise_of(step)), all.begin(), std::plus<float>());
        for (const std::size_t tensor : {0u, 2u}) {
            const auto have = x.tensor(passed, tensor), want = x.tensor(all, tensor);
            std::vector<float> with_error = x.error_of(tensor);
            std::ranges::transform(have, with_error, with_error.begin(), std::plus<float>());
            EXPECT_LT(distance(with_error, want), 1e-5 * norm(want)) << step;
            EXPECT_GT(distance(have, want), 1e-2 * norm(want)) << step;
        }
    }
}

TEST(PowerSgd, ConvergesToAGradientThatStays) {
    Compressing x;
    const std::vector<float> expected = x.exact_sum(noise_of(3));
    std::vector<float> passed(x.layout.size());
    std::vector<double> errors;
    for (int step = 1; step <= 80; ++step) {
        const auto got = x.sum(x.gradient(ranks().rank(), noise_of(3)));
        std::ranges::transform(passed, got, passed.begin(), std::plus<float>());
        std::vector<float> mean = passed;
        for (float& value : mean) value /= static_cast<float>(step);
        errors.push_back(distance(mean, expected) / norm(expected));
    }
    EXPECT_GT(errors[0], 0.5);
    EXPECT_LT(errors[79], errors[39]);
    EXPECT_LT(errors[79], 0.15);
}

TEST(PowerSgd, GivesEveryRankTheSameBits) {
    Compressing x;
    for (std::uint64_t step = 0; step < 5; ++step) {
        const std::string bytes = bytes_of(x.sum(x.gradient(ranks().rank(), noise_of(step))));
        EXPECT_EQ(bytes, ranks().broadcast(bytes)) << step;
    }
}

TEST(PowerSgd, LeavesTensorsAloneThatWouldNotShrink) {
    Compressing x;
    const std::vector<float> expected = x.exact_sum(noise_of(1));
    const std::vector<float> got = x.sum(x.gradient(ranks().rank(), noise_of(1)));
    for (const std::size_t tensor : {1u, 3u})
        EXPECT_LT(distance(x.tensor(got, tensor), x.tensor(expected, tensor)), 1e-5);
    EXPECT_EQ(x.hook->state().size(), 4u);
}

TEST(PowerSgd, ReportsItsCompression) {
    Compressing x;
    x.sum(x.gradient(ranks().rank(), noise_of(1)));
    const WireVolume volume = x.hook->take_volume();
    EXPECT_EQ(volume.gradient_bytes, x.layout.size() * sizeof(float));
    EXPECT_EQ(volume.wire_bytes, (sgd_rank * (40 + 30 + 64 + 75) + 50 + 12) * sizeof(float));
    EXPECT_GT(volume.compression_ratio(), 8.0);
    EXPECT_EQ(x.hook->take_volume().wire_bytes, 0u);
}

TEST(PowerSgd, GoesOnFromItsStateAsIfUndisturbed) {
    Compressing first, second;
    for (std::uint64_t step = 0; step < 3; ++step)
        first.sum(first.gradient(ranks().rank(), noise_of(step)));
    auto from = first.hook->state(), to = second.hook->state();
    for (std::size_t i = 0; i < from.size(); ++i) {
        EXPECT_EQ(from[i].name, to[i].name);
        std::ranges::copy(from[i].values, to[i].values.begin());
    }
    for (std::uint64_t step = 3; step < 6; ++step) {
        const auto gradient = first.gradient(ranks().rank(), noise_of(step));
        EXPECT_EQ(bytes_of(first.sum(gradient)), bytes_of(second.sum(gradient)));
    }
}

TEST(PowerSgd, ShowsWhatIsNotFiniteAndForgetsIt) {
    for (const float poison :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
        Compressing x;
        x.sum(x.gradient(ranks().rank(), noise_of(1)));
        const std::string before = bytes_of(x.error_of(0));
        auto gradient = x.gradient(ranks().rank(), noise_of(2));
        if (ranks().rank() == ranks().size() - 1) gradient[x.layout.tensor(0).begin + 5] = poison;
        const auto got = x.sum(gradient);
        EXPECT_TRUE(std::isnan(x.tensor(got, 0)[0]));
        EXPECT_TRUE(std::isfinite(x.tensor(got, 2)[0]));
        EXPECT_EQ(bytes_of(x.error_of(0)), before);
        EXPECT_TRUE(std::isfinite(norm(x.sum(x.gradient(ranks().rank(), noise_of(3))))));
    }
}

TEST(PowerSgd, RecoversFromGradientsThatWereZero) {
    Compressing x;
    x.sum(std::vector<float>(x.layout.size()));
    const std::vector<float> expected = x.exact_sum(low_rank);
    EXPECT_LT(distance(x.sum(x.gradient(ranks().rank(), low_rank)), expected),
              1e-4 * norm(expected));
}

}  // namespace
