// SPDX-License-Identifier: Apache-2.0
// What h5py writes with it is read in data/pack/h5py_files_test.cpp.
#include "lockstep/core/hash.hpp"
#include "lockstep/core/random.hpp"

#include "format/chunk_filters.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

std::optional<std::string> expanded(std::string_view stored, std::size_t bytes) {
    std::string raw(bytes, '\0');
    const bool is_whole = decode_lzf(bytes_of(stored), std::as_writable_bytes(std::span(raw)));
    return is_whole ? std::optional(raw) : std::nullopt;
}

TEST(Lzf, ExpandsLiteralsAndRepeats) {
    using namespace std::string_literals;
    EXPECT_EQ(expanded("\x02"s + "abc", 3), "abc");
    EXPECT_EQ(expanded("\x02"s + "abc" + "\x20\x02"s, 6), "abcabc");
    EXPECT_EQ(expanded("\x00"s + "a" + "\x60\x00"s, 6), "aaaaaa") << "reaches into itself";
    EXPECT_EQ(expanded("\x00"s + "a" + "\xe0\xff\x00"s, 265), std::string(265, 'a'));
}

TEST(Lzf, IsMeasuredByItsLengths) {
    using namespace std::string_literals;
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

}  // namespace
}  // namespace lockstep
