// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/random.hpp"

#include "lockstep/core/hash.hpp"

#include "philox_blocks.hpp"
#include "support/unit.hpp"

#include <numeric>
#include <set>
#include <vector>

#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using Words4 = std::array<std::uint32_t, 4>;

// Random123 1.14, tests/kat_vectors, philox4x32 with 10 rounds.
TEST(Philox, HasThePublishedValues) {
    EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
              (Words4{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
    constexpr auto ones = 0xffffffffu;
    EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
              (Words4{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
    EXPECT_EQ(
        philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
        (Words4{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, GivesTheSameByManyBlocksInEveryWayThisProcessorHas) {
    constexpr std::uint64_t key = 0x299f31d0a4093822;
    constexpr std::array keys{std::uint32_t{0xa4093822}, std::uint32_t{0x299f31d0}};
    // The second time the counter's low word runs over, the third time all of it.
    for (const std::uint64_t first : {0ull, 0xfffffff0ull, 0xfffffffffffffff0ull})
        for (const PhiloxBlocks blocks : philox_blocks()) {
            const PhiloxWords words = blocks(first, key);
            for (std::uint64_t i = 0; i < philox_blocks_at_once; ++i) {
                const std::uint64_t number = first + i;
                const Words4 block = philox4x32({static_cast<std::uint32_t>(number),
                                                 static_cast<std::uint32_t>(number >> 32),
                                                 0,
                                                 0},
                                                keys);
                EXPECT_EQ(words[2 * i], block[0] | std::uint64_t{block[1]} << 32);
                EXPECT_EQ(words[2 * i + 1], block[2] | std::uint64_t{block[3]} << 32);
            }
        }
}

// The values below are pinned: runs of every version must draw the same numbers. They were
// computed by an independent program from the definitions in the header.
TEST(KeyOf, IsPinnedAndKnowsTheOrder) {
    EXPECT_EQ(key_of({}), 0x243f6a8885a308d3u);
    EXPECT_EQ(key_of({1, 2}), 0xe3ef2c1a33e59705u);
    EXPECT_EQ(key_of({2, 1}), 0xa8ef84ce1ebf02a0u);
    EXPECT_EQ(mix64(0), 0xe220a8397b1dcdafu);
    EXPECT_EQ(mix64(1), 0x910a2dec89025cc1u);
}

TEST(CounterRandom, IsPinned) {
    CounterRandom random(Purpose::test, {1, 2, 3});
    for (const auto expected : {0x25f74ba163d23497u,
                                0x80b3376d4bc4d57au,
                                0xfcd33aa4f3db2664u,
                                0xbabf9dc219477d3du,
                                0x7d651db1ff2fc45eu}) {
        EXPECT_EQ(random.next(), expected);
    }
}

TEST(CounterRandom, HasPinnedBoundedAndRealNumbers) {
    CounterRandom random(Purpose::test, {1});
    std::vector<std::uint64_t> drawn(8);
    for (auto& value : drawn) value = random.below(1000);
    EXPECT_THAT(drawn, ElementsAre(625, 710, 780, 818, 67, 198, 82, 698));
    CounterRandom reals(Purpose::test, {1});
    EXPECT_EQ(reals.uniform(), 0.625546850534567);
    EXPECT_EQ(reals.uniform(), 0.7109186906119509);
    EXPECT_EQ(reals.uniform(), 0.7801380136042414);
}

TEST(Shuffle, IsPinned) {
    std::vector<int> ten(10), sixteen(16);
    std::iota(ten.begin(), ten.end(), 0);
    std::iota(sixteen.begin(), sixteen.end(), 0);
    shuffle(std::span(ten), CounterRandom(Purpose::test, {7}));
    shuffle(std::span(sixteen), CounterRandom(Purpose::block_order, {1, 0}));
    EXPECT_THAT(ten, ElementsAre(7, 2, 0, 8, 4, 6, 5, 1, 3, 9));
    EXPECT_THAT(sixteen, ElementsAre(6, 8, 0, 7, 4, 12, 9, 10, 11, 2, 3, 14, 15, 5, 1, 13));
}

TEST(CounterRandom, KeepsPurposesAndKeysApart) {
    std::set<std::uint64_t> firsts;
    for (const auto purpose : {Purpose::initial_weights, Purpose::block_order, Purpose::test}) {
        for (std::uint64_t seed = 0; seed < 100; ++seed) {
            firsts.insert(CounterRandom(purpose, {seed}).next());
            firsts.insert(CounterRandom(purpose, {seed, 0}).next());
        }
    }
    EXPECT_EQ(firsts.size(), 600u);
    CounterRandom first(Purpose::test, {5});
    first.next();
    auto second = first;
    for (int i = 0; i < 10; ++i) EXPECT_EQ(first.next(), second.next());
}

TEST(CounterRandom, IsUniformBelowANumberThatDividesNothing) {
    constexpr std::size_t faces = 6, draws = 60000;
    std::array<double, faces> counts{};
    CounterRandom random(Purpose::test, {11});
    for (std::size_t i = 0; i < draws; ++i) ++counts[random.below(faces)];
    double chi_squared = 0;
    for (const double count : counts) {
        const double expected = double(draws) / faces;
        chi_squared += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_squared, 20.5);  // 99.9 % of 5 degrees of freedom
}

TEST(CounterRandom, IsUniformWhereTheModuloWouldNotBeAndHasItsMeanInTheMiddle) {
    // 3 * 2^62: taking the remainder would give the first third twice as often.
    constexpr std::uint64_t bound = 3ull << 62;
    CounterRandom random(Purpose::test, {12});
    int low = 0;
    for (int i = 0; i < 30000; ++i) low += random.below(bound) < 1ull << 62;
    EXPECT_NEAR(low, 10000, 350);
    CounterRandom reals(Purpose::test, {13});
    double sum = 0;
    for (int i = 0; i < 100000; ++i) sum += reals.uniform();
    EXPECT_NEAR(sum / 100000, 0.5, 0.004);
}

RC_GTEST_PROP(CounterRandom, StaysBelowItsBound, (std::uint64_t seed)) {
    const auto bits = *rc::gen::inRange(0, 64);
    const auto bound = (*rc::gen::arbitrary<std::uint64_t>() >> bits) | 1;
    CounterRandom random(Purpose::test, {seed});
    for (int i = 0; i < 20; ++i) RC_ASSERT(random.below(bound) < bound);
    RC_ASSERT(random.below(1) == 0u);
    const double real = random.uniform();
    RC_ASSERT(real >= 0 && real < 1);
}

RC_GTEST_PROP(CounterRandom, HasTheSameNumbersOneByOneAndAtOnce, (std::uint64_t seed)) {
    CounterRandom one(Purpose::test, {seed}), many = one;
    for (const std::size_t count :
         *rc::gen::container<std::vector<std::size_t>>(rc::gen::inRange<std::size_t>(0, 200))) {
        std::vector<std::uint64_t> words(count);
        many.next(words);
        for (const std::uint64_t word : words) RC_ASSERT(word == one.next());
    }
}

RC_GTEST_PROP(CounterRandom, FallsAsOneNumberAfterTheOther, (std::uint64_t seed)) {
    // Of the largest bounds here nearly every second word is of no use.
    const std::uint64_t bound =
        *rc::gen::element<std::uint64_t>(200, 1000, 1ull << 32, (1ull << 63) + 1000);
    CounterRandom one(Purpose::test, {seed}), many = one;
    std::vector<std::uint64_t> numbers(*rc::gen::inRange<std::size_t>(0, 200));
    many.below_falling(bound, numbers);
    for (std::size_t i = 0; i < numbers.size(); ++i) RC_ASSERT(numbers[i] == one.below(bound - i));
    RC_ASSERT(many.next() == one.next());
}

TEST(Shuffle, IsThatOfFisherAndYatesAtAnyLength) {
    for (std::size_t length = 0; length < 300; ++length) {
        std::vector<std::size_t> shuffled(length), expected(length);
        std::iota(shuffled.begin(), shuffled.end(), 0u);
        std::iota(expected.begin(), expected.end(), 0u);
        CounterRandom random(Purpose::test, {length});
        shuffle(std::span(shuffled), random);
        for (std::size_t i = length; i > 1; --i)
            std::swap(expected[i - 1], expected[random.below(i)]);
        EXPECT_EQ(shuffled, expected);
    }
}

TEST(Shuffle, ReachesEveryPermutationEquallyOften) {
    std::map<std::vector<int>, int> counts;
    for (std::uint64_t seed = 0; seed < 24000; ++seed) {
        std::vector<int> four{0, 1, 2, 3};
        shuffle(std::span(four), CounterRandom(Purpose::test, {seed}));
        ++counts[four];
    }
    ASSERT_EQ(counts.size(), 24u);
    for (const auto& [order, count] : counts) EXPECT_NEAR(count, 1000, 150);
}

/// The buffer of xxHash's own sanity test.
std::string test_buffer(std::size_t bytes) {
    std::uint64_t generator = 2654435761u;
    std::string buffer(bytes, '\0');
    for (char& c : buffer) {
        c = static_cast<char>(generator >> 56);
        generator *= 11400714785074694797ull;
    }
    return buffer;
}

// xxHash 0.8, tests/sanity_test_vectors.h, seed 0.
TEST(Hash64, HasThePublishedValues) {
    const std::vector<std::pair<std::size_t, std::uint64_t>> vectors{
        {0, 0x2D06800538D394C2},
        {1, 0xC44BDFF4074EECDB},
        {6, 0x27B56A84CD2D7325},
        {12, 0xA713DAF0DFBB77E7},
        {24, 0xA3FE70BF9D3510EB},
        {48, 0x397DA259ECBA1F11},
        {80, 0xBCDEFBBB2C47C90A},
        {195, 0xCD94217EE362EC3A},
        {403, 0xCDEB804D65C6DEA4},
        {512, 0x617E49599013CB6B},
        {2048, 0xDD59E2C3A5F038E0},
    };
    for (const auto& [bytes, expected] : vectors) {
        EXPECT_EQ(hash64(bytes_of(test_buffer(bytes))), expected) << bytes;
    }
}

TEST(Hash128, HasThePublishedValuesAndKeepsLeadingZeros) {
    EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f");
    EXPECT_EQ(hash128(test_buffer(1)), (Hash128{0xA6CD5E9392000F6A, 0xC44BDFF4074EECDB}));
    EXPECT_EQ(hash128(test_buffer(6)), (Hash128{0x082AFE0B8162D12A, 0x3E7039BDDA43CFC6}));
    EXPECT_EQ(hash128(test_buffer(2048)), (Hash128{0xF736557FD47073A5, 0xDD59E2C3A5F038E0}));
    EXPECT_EQ((Hash128{1, 2}).hex(), "00000000000000010000000000000002");
    EXPECT_EQ(hex64(0xabc), "0000000000000abc");
}

TEST(Hasher128, CanBeMoved) {
    Hasher128 first;
    first.add(bytes_of("ab"));
    Hasher128 second = std::move(first);
    second.add(bytes_of("c"));
    EXPECT_EQ(second.value(), hash128("abc"));
    second.add(bytes_of("d"));
    EXPECT_EQ(second.value(), hash128("abcd"));
}

RC_GTEST_PROP(Hasher128, DoesNotDependOnThePieces, (std::vector<std::string> pieces)) {
    Hasher128 hasher;
    std::string whole;
    for (const auto& piece : pieces) {
        hasher.add(bytes_of(piece));
        whole += piece;
    }
    RC_ASSERT(hasher.value() == hash128(whole));
}

RC_GTEST_PROP(Hash64, SeesEveryFlippedBit, ()) {
    auto text = *rc::gen::nonEmpty<std::string>();
    const auto before = hash64(bytes_of(text));
    const auto at = *rc::gen::inRange<std::size_t>(0, text.size() * 8);
    text[at / 8] = static_cast<char>(text[at / 8] ^ (1 << at % 8));
    RC_ASSERT(hash64(bytes_of(text)) != before);
}

}  // namespace
}  // namespace lockstep
