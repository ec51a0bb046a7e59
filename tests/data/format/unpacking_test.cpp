// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"
#include "lockstep/core/random.hpp"
#include "lockstep/data/dataset_index.hpp"

#include "format/codec.hpp"
#include "format/widening.hpp"
#include "support/unit.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

namespace lockstep {
namespace {

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

TEST(Unpacking, RoundsOnceFromDoublePrecisionAndKeepsZerosSignWhereNothingIsAdded) {
    const Unpacking unpacking = of(i16, {0.1, 273.15}, {});
    EXPECT_THAT(unpacked<std::int16_t>(unpacking, {0, -7, 32767}),
                ElementsAre(273.15F,
                            static_cast<float>(-7 * 0.1 + 273.15),
                            static_cast<float>(32767 * 0.1 + 273.15)));
    EXPECT_TRUE(std::signbit(unpacked<float>(of(f32, {2.0, {}}, {}), {-0.0F})[0]));
}

TEST(Unpacking, PutsWhatWasStatedInThePlaceOfMissingValues) {
    const CfPacking packing{
        {}, {}, {static_cast<std::uint64_t>(-9)}, static_cast<std::uint64_t>(-20), 20};
    EXPECT_THAT(unpacked<std::int16_t>(of(i16, packing, 0.5), {-9, 9, -20, 20, -21, 21}),
                ElementsAre(0.5F, 9, -20, 20, 0.5F, 0.5F));
    const CfPacking of_64{1.0, {}, {~std::uint64_t{0}}};
    EXPECT_THAT(unpacked<std::uint64_t>(of(u64, of_64, 0), {~std::uint64_t{0}, 1}),
                ElementsAre(0, 1));
}

TEST(Unpacking, MarksMissingValuesThatNothingStandsForAndTakesNanForThemOnlyWhereItIsCalledSo) {
    const CfPacking packing{{}, {}, {std::bit_cast<std::uint64_t>(1e20)}};
    std::vector<float> marker{std::bit_cast<float>(Unpacking::no_value), 1, 1e20F};
    const std::vector<float> values = unpacked<float>(of(f32, packing, {}), marker);
    EXPECT_EQ(first_missing(std::as_bytes(std::span(values))), 2u);  // no stored NaN is the mark
    EXPECT_TRUE(std::isnan(values[0]));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const CfPacking nans{{}, {}, {std::bit_cast<std::uint64_t>(double{nan})}};
    EXPECT_THAT(unpacked<float>(of(f32, nans, 3), {nan, 1}), ElementsAre(3, 1));
    EXPECT_TRUE(std::isnan(unpacked<float>(of(f32, {1.0, {}}, 3), {nan})[0]));
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

// What h5py writes with it is read in data/foreign_matrix.

std::optional<std::string> expanded(std::string_view stored, std::size_t bytes) {
    std::string raw(bytes, '\0');
    const bool is_whole = decode_lzf(bytes_of(stored), std::as_writable_bytes(std::span(raw)));
    return is_whole ? std::optional(raw) : std::nullopt;
}

TEST(Lzf, ExpandsLiteralsAndRepeatsOfMeasuredLengths) {
    using namespace std::string_literals;
    EXPECT_EQ(expanded("\x02"s + "abc", 3), "abc");
    EXPECT_EQ(expanded("\x02"s + "abc" + "\x20\x02"s, 6), "abcabc");
    EXPECT_EQ(expanded("\x00"s + "a" + "\x60\x00"s, 6), "aaaaaa") << "reaches into itself";
    EXPECT_EQ(expanded("\x00"s + "a" + "\xe0\xff\x00"s, 265), std::string(265, 'a'));
    const auto bytes = [](const std::string& stored) { return lzf_bytes(bytes_of(stored)); };
    EXPECT_EQ(bytes("\x02"s + "abc" + "\x20\x02"s), 6u);
    EXPECT_EQ(bytes("\x00"s + "a" + "\xe0\xff\x00"s), 265u);
    for (const std::string& cut : {"\x02"s + "ab", "\x00"s + "a" + "\x20"s, "\xe0\xff"s, ""s})
        EXPECT_EQ(bytes(cut), 0u);
}

TEST(Lzf, RefusesWhatIsCutOrReachesOut) {
    using namespace std::string_literals;
    for (const std::string& stored : {"\x02"s + "ab",
                                      "\x00"s + "a" + "\x20"s,
                                      "\x00"s + "a" + "\xe0\xff"s,
                                      "\x00"s + "a" + "\x20\x01"s,
                                      "\x20\x00"s,
                                      ""s})
        EXPECT_FALSE(expanded(stored, 4));
    EXPECT_FALSE(expanded("\x02"s + "abc", 2));
    EXPECT_FALSE(expanded("\x02"s + "abc", 4));
    EXPECT_FALSE(expanded("\x00"s + "a" + "\x20\x00"s, 3));
}

TEST(Lzf, StaysWithinItsBytesWhateverTheyAre) {
    for (std::uint64_t seed = 0; seed < 2000; ++seed) {
        CounterRandom random(Purpose::test, {seed});
        std::string stored(random.below(64), '\0');
        for (char& byte : stored) byte = static_cast<char>(random.below(256));
        const std::uint64_t size = random.below(300);
        const bool is_whole = expanded(stored, size).has_value();  // sanitizers look at it
        EXPECT_TRUE(!is_whole || lzf_bytes(bytes_of(stored)) == size);
    }
}

// Number of the element of a sample of `size` at place `number` of a box of `shape` at `begin`;
// nothing beyond the sample.
std::optional<std::uint64_t> element_of_sample(const std::vector<std::uint64_t>& size,
                                               const std::vector<std::uint64_t>& shape,
                                               const std::vector<std::uint64_t>& begin,
                                               std::uint64_t number) {
    std::uint64_t element = 0, step = 1;
    for (std::size_t d = size.size(); d-- > 0; number /= shape[d], step *= size[d]) {
        const std::uint64_t at = begin[d] + number % shape[d];
        if (at >= size[d]) return {};
        element += at * step;
    }
    return element;
}

// Cuts numbered samples into chunks with padding of 255s, one element after the other, and puts
// them together again.
template <class Element>
void expect_whole_again(const Cut& cut, std::uint64_t rows) {
    const std::uint64_t sample = std::accumulate(
        cut.sample.begin(), cut.sample.end(), std::uint64_t{1}, std::multiplies<>{});
    std::vector<Element> wanted(rows * sample), got(wanted.size());
    std::iota(wanted.begin(), wanted.end(), Element{1});
    std::vector<std::uint64_t> begin(cut.sample.size(), 0);
    for (std::uint64_t tile = 0; tile < cut.tiles(); ++tile) {
        const std::uint64_t places = cut.chunk_elements();
        std::vector<Element> chunk(rows * places, static_cast<Element>(-1));
        for (std::uint64_t i = 0; i < chunk.size(); ++i)
            if (const auto at = element_of_sample(cut.sample, cut.chunk, begin, i % places))
                chunk[i] = wanted[i / places * sample + *at];
        const auto values = without_padding(
            cut, tile, sizeof(Element), rows, std::as_writable_bytes(std::span(chunk)));
        EXPECT_EQ(values.size(), rows * cut.elements_of(tile) * sizeof(Element));
        put_tile(cut, tile, sizeof(Element), values, std::as_writable_bytes(std::span(got)));
        for (std::size_t d = begin.size(); d-- > 0;) {
            begin[d] += cut.chunk[d];
            if (begin[d] < cut.sample[d]) break;
            begin[d] = 0;
        }
    }
    EXPECT_THAT(got, ElementsAreArray(wanted));
}

TEST(Cut, PutsTilesOfAnyShapeTogether) {
    for (const Cut& cut : {Cut{{7}, {3}},
                           Cut{{7}, {9}},
                           Cut{{5, 6}, {3, 4}},
                           Cut{{5, 6}, {5, 4}},
                           Cut{{5, 6}, {2, 6}},
                           Cut{{5, 6}, {1, 1}},
                           Cut{{3, 8, 8}, {1, 4, 4}},
                           Cut{{8, 8, 3}, {4, 4, 1}},
                           Cut{{8, 8, 3}, {3, 8, 2}},
                           Cut{{3, 4, 5, 6}, {2, 4, 3, 6}},
                           Cut{{1, 1, 33}, {1, 1, 16}}})
        for (const std::uint64_t rows : {1, 2, 5}) {
            expect_whole_again<std::uint8_t>(cut, rows);
            expect_whole_again<std::uint32_t>(cut, rows);
            expect_whole_again<std::uint64_t>(cut, rows);
        }
}

TEST(Cut, CountsTilesAndIsSoundIfNothingIsEmptyOrOverflows) {
    const Cut cut{{5, 6}, {3, 4}};
    EXPECT_EQ(cut.tiles(), 4u);
    EXPECT_EQ(cut.chunk_elements(), 12u);
    std::vector<std::uint64_t> elements;
    for (std::uint64_t tile = 0; tile < 4; ++tile) elements.push_back(cut.elements_of(tile));
    EXPECT_THAT(elements, ElementsAre(12, 6, 8, 4));
    EXPECT_TRUE((Cut{{5, 6}, {3, 4}}.is_sound()));
    EXPECT_FALSE((Cut{{}, {}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 6}, {3}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 0}, {3, 4}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 6}, {0, 4}}.is_sound()));
    EXPECT_FALSE((Cut{{1u << 30, 1u << 30}, {1, 1}}.is_sound()));
    EXPECT_FALSE((Cut{{5, 6}, {~std::uint64_t{0}, 2}}.is_sound()));
}

}  // namespace
}  // namespace lockstep
