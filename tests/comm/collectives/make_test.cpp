// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/collectives.hpp"

#include "comm/collectives/elements.hpp"
#include "support/mpi_test.hpp"

#include <cstdint>
#include <set>
#include <string_view>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::Elements;
using lockstep::test::ranks;

/// Small whole numbers, whose sum every order and every type gives exactly.
Elements whole_numbers(DataType type, std::size_t count, int rank) {
    Elements elements(type, count, 0);
    for (std::size_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>((i + static_cast<std::size_t>(rank)) % 8);
        switch (type) {
            case DataType::float32:
                elements.set(i, value);
                break;
            case DataType::bfloat16:
                elements.set(i, test::to_brain_float(value));
                break;
            case DataType::float64:
                elements.set(i, double{value});
                break;
            case DataType::int64:
                elements.set(i, static_cast<std::int64_t>(value));
                break;
        }
    }
    return elements;
}

Elements sum_of_whole_numbers(DataType type, std::size_t count) {
    std::vector<Elements> inputs;
    std::vector<int> left_to_right(static_cast<std::size_t>(ranks().size()), 1);
    left_to_right[0] = 0;
    for (int rank = 0; rank < ranks().size(); ++rank)
        inputs.push_back(whole_numbers(type, count, rank));
    return test::sum_by_elements(left_to_right, inputs);
}

TEST(Algorithms, HaveNamesOfTheirOwnAndKnowThem) {
    std::set<std::string_view> names;
    for (const Algorithm algorithm : all_algorithms()) {
        EXPECT_TRUE(names.insert(name_of(algorithm)).second) << name_of(algorithm);
        EXPECT_EQ(make_all_reduce(ranks(), algorithm)->name(), name_of(algorithm));
    }
}

TEST(Algorithms, SumEveryTypeAndCountFromAnyMemory) {
    for (const Algorithm algorithm : all_algorithms()) {
        const auto group = make_all_reduce(ranks(), algorithm);
        for (const DataType type : all_data_types()) {
            for (const std::size_t count : {0, 1, 7, 33, 1000, 40'001}) {
                const Elements expected = sum_of_whole_numbers(type, count);
                Elements mine = whole_numbers(type, count, ranks().rank());
                std::byte* lent = group->lend(mine.bytes());
                EXPECT_EQ(reinterpret_cast<std::uintptr_t>(lent) % 64, 0U);
                std::copy_n(mine.data(), mine.bytes(), lent);
                group->all_reduce(mine.data(), count, type);
                group->all_reduce(lent, count, type);
                EXPECT_TRUE(mine == expected) << name_of(algorithm) << name_of(type) << count;
                EXPECT_TRUE(std::equal(lent, lent + mine.bytes(), expected.data()))
                    << name_of(algorithm) << name_of(type) << count;
            }
        }
    }
}

TEST(Algorithms, LendZeros) {
    for (const Algorithm algorithm : all_algorithms()) {
        const auto group = make_all_reduce(ranks(), algorithm);
        const std::byte* lent = group->lend(10'000);
        EXPECT_EQ(std::count(lent, lent + 10'000, std::byte{0}), 10'000) << name_of(algorithm);
    }
}

}  // namespace
