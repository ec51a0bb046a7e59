// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/hash.hpp"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

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

TEST(Hash128, HasThePublishedValues) {
    EXPECT_EQ(hash128("").hex(), "99aa06d3014798d86001c324468d497f");
    EXPECT_EQ(hash128(test_buffer(1)), (Hash128{0xA6CD5E9392000F6A, 0xC44BDFF4074EECDB}));
    EXPECT_EQ(hash128(test_buffer(6)), (Hash128{0x082AFE0B8162D12A, 0x3E7039BDDA43CFC6}));
    EXPECT_EQ(hash128(test_buffer(2048)), (Hash128{0xF736557FD47073A5, 0xDD59E2C3A5F038E0}));
}

TEST(Hash128, KeepsLeadingZerosInItsText) {
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
