// SPDX-License-Identifier: Apache-2.0
#include "format/chunk_filters.hpp"
#include "format/codec.hpp"
#include "format/widening.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

constexpr StoredNumber i16{2, true, true}, u64{8, true, false}, f32{4, false, true};

template <class Value>
std::vector<float> unpacked(const Unpacking& unpacking, const std::vector<Value>& stored) {
    std::vector<float> values(stored.size());
    EXPECT_TRUE(unpacking.undo(std::as_bytes(std::span(stored)),
                               std::as_writable_bytes(std::span(values))));
    return values;
}

Unpacking of(const StoredNumber& stored, const CfPacking& packing, std::optional<double> instead) {
    return *Unpacking::of(stored, packing, instead);
}

TEST(Unpacking, RoundsOnceFromDoublePrecision) {
    const Unpacking unpacking = of(i16, {0.1, 273.15}, {});
    EXPECT_THAT(unpacked<std::int16_t>(unpacking, {0, -7, 32767}),
                ElementsAre(273.15F,
                            static_cast<float>(-7 * 0.1 + 273.15),
                            static_cast<float>(32767 * 0.1 + 273.15)));
}

TEST(Unpacking, KeepsZerosSignWhereNothingIsAdded) {
    EXPECT_TRUE(std::signbit(unpacked<float>(of(f32, {2.0, {}}, {}), {-0.0F})[0]));
}

TEST(Unpacking, PutsWhatWasStatedInThePlaceOfMissingValues) {
    const CfPacking packing{
        {}, {}, {static_cast<std::uint64_t>(-9)}, static_cast<std::uint64_t>(-20), 20};
    EXPECT_THAT(unpacked<std::int16_t>(of(i16, packing, 0.5), {-9, 9, -20, 20, -21, 21}),
                ElementsAre(0.5F, 9, -20, 20, 0.5F, 0.5F));
}

TEST(Unpacking, MarksMissingValuesThatNothingStandsFor) {
    const CfPacking packing{{}, {}, {std::bit_cast<std::uint64_t>(1e20)}};
    std::vector<float> marker{std::bit_cast<float>(Unpacking::no_value), 1, 1e20F};
    const std::vector<float> values = unpacked<float>(of(f32, packing, {}), marker);
    EXPECT_EQ(first_missing(std::as_bytes(std::span(values))), 2u);  // no stored NaN is the mark
    EXPECT_TRUE(std::isnan(values[0]));
}

TEST(Unpacking, TakesNanForMissingOnlyWhereItIsCalledSo) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const CfPacking packing{{}, {}, {std::bit_cast<std::uint64_t>(double{nan})}};
    EXPECT_THAT(unpacked<float>(of(f32, packing, 3), {nan, 1}), ElementsAre(3, 1));
    EXPECT_TRUE(std::isnan(unpacked<float>(of(f32, {1.0, {}}, 3), {nan})[0]));
}

TEST(Unpacking, ComparesNumbersOf64BitsWithoutSign) {
    const CfPacking packing{1.0, {}, {~std::uint64_t{0}}};
    EXPECT_THAT(unpacked<std::uint64_t>(of(u64, packing, 0), {~std::uint64_t{0}, 1}),
                ElementsAre(0, 1));
}

TEST(Unpacking, IsAFilterThatComesBack) {
    const CfPacking packing{0.5, {}, {7, 8}, 1, {}};
    const Filter filter = of(i16, packing, -2).as_filter();
    const auto again = Unpacking::of(filter);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->as_filter(), filter);
    EXPECT_EQ(filter_fault({filter, {FilterKind::deflate}}), "");
    EXPECT_NE(filter_fault({{FilterKind::deflate}, filter}), "");
    Filter broken = filter;
    broken.values.resize(9);
    EXPECT_NE(filter_fault({broken}), "");
    broken = filter;
    broken.element = 1000;
    EXPECT_NE(filter_fault({broken}), "");
}

// Numbers of 8 bytes become shorter: rooms of decoders have to hold them before they are.
TEST(Unpacking, MakesRoomForWiderStoredNumbers) {
    const FilterChain chain{of({8, false, true}, {2.0, {}}, {}).as_filter(),
                            {FilterKind::shuffle, 8}};
    const std::vector<double> stored{1, 2};
    std::array<float, 2> values{};
    std::vector<std::byte> shuffled(16);
    for (std::size_t i = 0; i < 16; ++i)
        shuffled[i % 8 * 2 + i / 8] = std::as_bytes(std::span(stored))[i];
    Decoder decoder;
    ASSERT_TRUE(decoder.decode(chain, shuffled, std::as_writable_bytes(std::span(values))));
    EXPECT_THAT(values, ElementsAre(2, 4));
    EXPECT_GE(Decoder::buffer_bytes(chain, 16, 8), 32u);
    EXPECT_EQ(most_expanded(chain, 16), 8u);
}

}  // namespace
}  // namespace lockstep
