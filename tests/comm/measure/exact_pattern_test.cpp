// SPDX-License-Identifier: Apache-2.0
#include "measure/exact_pattern.hpp"

#include "collectives/sum_kernels.hpp"

#include <array>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;

using Bytes = std::vector<std::uint64_t>;

Bytes filled(DataType type, std::size_t count, int rank, int ranks, int round) {
    Bytes bytes(count * size_of(type) / 8 + 1);
    fill_exact(bytes.data(), count, type, rank, ranks, round);
    return bytes;
}

/// One rank after another, rounded after each: the worst order for exactness.
Bytes summed(DataType type, std::size_t count, int ranks, int round) {
    constexpr std::array both = {0, 1};
    Bytes sum = filled(type, count, 0, ranks, round);
    for (int rank = 1; rank < ranks; ++rank) {
        const Bytes more = filled(type, count, rank, ranks, round);
        const std::array<const void*, 2> inputs = {sum.data(), more.data()};
        const std::array<void*, 1> outputs = {sum.data()};
        sum_into(type, both, inputs, outputs, count);
    }
    return sum;
}

struct Case {
    DataType type;
    int ranks, round;
    std::size_t count;
};

Case any_case() {
    const auto types = all_data_types();
    return {*rc::gen::elementOf(std::vector<DataType>(types.begin(), types.end())),
            *rc::gen::inRange(2, 300),
            *rc::gen::inRange(0, 10),
            *rc::gen::inRange<std::size_t>(2, 200)};
}

RC_GTEST_PROP(ExactPattern, IsExactInEveryType, ()) {
    const Case c = any_case();
    const Bytes sum = summed(c.type, c.count, c.ranks, c.round);
    RC_ASSERT(count_wrong(sum.data(), c.count, c.type, c.ranks, c.round) == 0u);
}

RC_GTEST_PROP(ExactPattern, SeesAnyElementChanged, ()) {
    const Case c = any_case();
    Bytes sum = summed(c.type, c.count, c.ranks, c.round);
    const auto element = *rc::gen::inRange<std::size_t>(0, c.count);
    const auto byte = *rc::gen::inRange<std::size_t>(0, size_of(c.type));
    reinterpret_cast<unsigned char*>(sum.data())[element * size_of(c.type) + byte] ^= 0x10;
    RC_ASSERT(count_wrong(sum.data(), c.count, c.type, c.ranks, c.round) == 1u);
}

TEST(ExactPattern, SeesARankThatWasLeftOut) {
    constexpr std::size_t count = 4096;
    for (const DataType type : all_data_types())
        for (int ranks = 2; ranks <= 8; ++ranks) {
            const Bytes alone = filled(type, count, 0, ranks, 0);
            EXPECT_GT(count_wrong(alone.data(), count, type, ranks, 0), count / 2);
        }
}

TEST(ExactPattern, SeesAnOldRound) {
    const Bytes old = summed(DataType::float32, 4096, 3, 0);
    EXPECT_GT(count_wrong(old.data(), 4096, DataType::float32, 3, 1), 1000u);
}

TEST(ExactPattern, SeesSwappedHalves) {
    constexpr std::size_t count = 4096, half = count / 2 * sizeof(float);
    const Bytes sum = summed(DataType::float32, count, 2, 0);
    Bytes swapped(sum.size());
    const auto* from = reinterpret_cast<const std::byte*>(sum.data());
    auto* to = reinterpret_cast<std::byte*>(swapped.data());
    std::memcpy(to, from + half, half);
    std::memcpy(to + half, from, half);
    EXPECT_GT(count_wrong(swapped.data(), count, DataType::float32, 2, 0), count / 2);
}

}  // namespace
