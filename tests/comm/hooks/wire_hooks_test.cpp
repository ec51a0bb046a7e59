// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/core/random.hpp"

#include "support/mpi_test.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

class EachFormat : public testing::TestWithParam<WireFormat> {
  protected:
    std::vector<float> sum(std::vector<float> values) {
        hook->sum(0, values);
        return values;
    }
    /// Relative error of one rounding to 8 or 11 significant bits.
    double rounding() const { return GetParam() == WireFormat::bfloat16 ? 0x1p-8 : 0x1p-11; }

    std::unique_ptr<AllReduce> carrier = make_all_reduce(ranks(), Algorithm::parameter_server);
    std::unique_ptr<BucketHook> hook = make_wire_hook(GetParam(), ranks(), *carrier);
};
INSTANTIATE_TEST_SUITE_P(WireHooks,
                         EachFormat,
                         testing::Values(WireFormat::bfloat16, WireFormat::float16),
                         [](const auto& instance) { return std::string(name_of(instance.param)); });

float any_value(int rank, std::size_t index, double magnitude) {
    const std::uint64_t bits = mix64(mix64(static_cast<std::uint64_t>(rank)) + index);
    return static_cast<float>((static_cast<double>(bits >> 11) * 0x1p-52 - 1) * magnitude);
}

std::vector<float> partial_of(int rank, std::size_t count, double magnitude) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = any_value(rank, i, magnitude);
    return values;
}

TEST_P(EachFormat, IsExactForSumsThatItCanHold) {
    for (const std::size_t count : {0u, 1u, 16u, 31u, 1000u, 4096u}) {
        std::vector<float> mine(count), expected(count);
        for (std::size_t i = 0; i < count; ++i) {
            const auto small = static_cast<float>(static_cast<int>(i % 41) - 20);
            mine[i] = small * static_cast<float>(ranks().rank() + 1);
            const int sum_of_ranks = ranks().size() * (ranks().size() + 1) / 2;
            expected[i] = small * static_cast<float>(sum_of_ranks);
        }
        EXPECT_EQ(sum(mine), expected) << count;
    }
}

TEST_P(EachFormat, IsWithinTwoRoundingsAtAnyMagnitude) {
    constexpr std::size_t count = 3000;
    for (const double magnitude : {1e-30, 1e-8, 1e-3, 1.0, 6e4, 1e6, 1e30}) {
        const std::vector<float> got = sum(partial_of(ranks().rank(), count, magnitude));
        double worst = 0;
        for (std::size_t i = 0; i < count; ++i) {
            double exact = 0, weight = 0;
            for (int rank = 0; rank < ranks().size(); ++rank) {
                exact += any_value(rank, i, magnitude);
                weight += std::abs(static_cast<double>(any_value(rank, i, magnitude)));
            }
            // float16 has fixed steps below 2^-14 of the largest value it was scaled to.
            const double step = magnitude * ranks().size() * 0x1p-36;
            worst = std::max(worst, std::abs(got[i] - exact) / (weight + step / rounding()));
        }
        EXPECT_LE(worst, 2.1 * rounding()) << magnitude;
    }
}

TEST_P(EachFormat, GivesEveryRankTheSameBits) {
    const std::vector<float> got = sum(partial_of(ranks().rank(), 777, 1.0));
    std::string bytes(got.size() * sizeof(float), '\0');
    std::memcpy(bytes.data(), got.data(), bytes.size());
    EXPECT_EQ(bytes, ranks().broadcast(bytes));
}

TEST_P(EachFormat, KeepsWhatIsNotFinite) {
    std::vector<float> mine(100, 1.0f);
    if (ranks().rank() == ranks().size() - 1) {
        mine[3] = std::numeric_limits<float>::infinity();
        mine[70] = std::numeric_limits<float>::quiet_NaN();
    }
    const std::vector<float> got = sum(mine);
    EXPECT_TRUE(std::isinf(got[3]));
    EXPECT_TRUE(std::isnan(got[70]));
    EXPECT_EQ(got[4], static_cast<float>(ranks().size()));
}

TEST_P(EachFormat, HalvesTheBytes) {
    sum(std::vector<float>(1000));
    const WireVolume volume = hook->take_volume();
    if (ranks().size() > 1) {
        EXPECT_EQ(volume.gradient_bytes, 4000u);
        EXPECT_EQ(volume.compression_ratio(), 2.0);
    }
    EXPECT_EQ(hook->take_volume().wire_bytes, 0u);
    EXPECT_EQ(hook->name(), name_of(GetParam()));
}

}  // namespace
