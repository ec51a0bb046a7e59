// SPDX-License-Identifier: Apache-2.0
#include "hierarchical/half_floats.hpp"

#include <array>
#include <cmath>
#include <cstdint>
#include <limits>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;

struct Format {
    const char* name;
    std::uint16_t (*encode)(float);
    float (*decode)(std::uint16_t);
    std::uint16_t infinity;
};
constexpr std::array formats = {
    Format{"bfloat16", to_bfloat16, from_bfloat16, 0x7f80},
    Format{"float16", to_float16, from_float16, 0x7c00},
};

TEST(HalfFloats, ComeBackAsTheyWere) {
    for (const Format& format : formats)
        for (std::uint32_t half = 0; half <= 0xffff; ++half) {
            const float value = format.decode(static_cast<std::uint16_t>(half));
            if (std::isnan(value))
                EXPECT_TRUE(std::isnan(format.decode(format.encode(value)))) << format.name;
            else
                EXPECT_EQ(format.encode(value), half) << format.name;
        }
}

TEST(HalfFloats, AreTheNearestAndEvenHalfway) {
    for (const Format& format : formats)
        for (std::uint16_t half = 0; half + 1 < format.infinity; ++half) {
            const float low = format.decode(half);
            const float high = format.decode(static_cast<std::uint16_t>(half + 1));
            const float middle = low + (high - low) / 2;  // exact: a float has bits to spare
            const auto even = static_cast<std::uint16_t>(half + half % 2);
            EXPECT_EQ(format.encode(middle), even) << format.name << " " << low;
            EXPECT_EQ(format.encode(std::nextafter(middle, low)), half) << format.name;
            EXPECT_EQ(format.encode(std::nextafter(middle, high)), half + 1) << format.name;
            EXPECT_EQ(format.encode(-middle), even | 0x8000) << format.name;
        }
}

TEST(HalfFloats, KnowTheirLimits) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const Format& format : formats) {
        EXPECT_EQ(format.encode(infinity), format.infinity);
        EXPECT_EQ(format.encode(-infinity), format.infinity | 0x8000);
        EXPECT_EQ(format.encode(std::numeric_limits<float>::max()), format.infinity);
        EXPECT_EQ(format.decode(format.infinity), infinity);
        EXPECT_TRUE(std::isnan(format.decode(format.encode(std::nanf("1")))));
    }
    EXPECT_EQ(from_float16(to_float16(65504)), 65504.0f);
    EXPECT_EQ(from_float16(to_float16(65519)), 65504.0f);
    EXPECT_EQ(from_float16(to_float16(65520)), infinity);
    EXPECT_EQ(from_float16(1), 0x1p-24f);
}

}  // namespace
