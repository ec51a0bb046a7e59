// SPDX-License-Identifier: Apache-2.0
// The algorithms over messages: exact where sums are exact, the same bits everywhere, and in the
// order of summation that each of them claims.
#include "lockstep/comm/collectives.hpp"

#include "collectives/sum_kernels.hpp"
#include "comm/collectives/elements.hpp"
#include "support/mpi_test.hpp"

#include <bit>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::hard_elements;
using lockstep::test::ranks;

struct Case {
    DataType type;
    std::size_t count, offset;
    std::uint64_t seed;
};

Case any_case() {
    const auto types = all_data_types();
    return {*rc::gen::elementOf(std::vector<DataType>(types.begin(), types.end())),
            *rc::gen::inRange<std::size_t>(0, *rc::gen::element(10, 300, 20'000)),
            *rc::gen::inRange<std::size_t>(0, 16),
            *rc::gen::inRange<std::uint64_t>(0, 1000)};
}

std::string text_of(const Case& c) {
    return std::string(name_of(c.type)) + " x " + std::to_string(c.count);
}

test::Elements contribution(const Case& c, int rank) {
    return hard_elements(c.type, c.count, c.offset, c.seed, rank);
}

test::Elements result_of(Algorithm algorithm, const Case& c) {
    const auto group = make_all_reduce(ranks(), algorithm);
    test::Elements mine = contribution(c, ranks().rank());
    group->all_reduce(mine.data(), c.count, c.type);
    EXPECT_TRUE(mine.is_unharmed_around()) << name_of(algorithm) << ": " << text_of(c);
    return mine;
}

test::Elements sum_in(std::span<const int> merges_after, const Case& c) {
    std::vector<test::Elements> inputs;
    for (int rank = 0; rank < ranks().size(); ++rank) inputs.push_back(contribution(c, rank));
    return test::sum_by_elements(merges_after, inputs);
}

/// Collective. Whether it holds on all ranks: a property fails on all of them or on none.
bool everywhere(bool holds) {
    std::vector<std::int64_t> failing = {holds ? 0 : 1};
    ranks().all_reduce_sum(failing);
    return failing[0] == 0;
}

RC_GTEST_PROP(EveryAlgorithm, GivesAllRanksTheSameBits, ()) {
    const Case c = any_case();
    for (const Algorithm algorithm : all_algorithms()) {
        const test::Elements mine = result_of(algorithm, c);
        const std::string bytes(reinterpret_cast<const char*>(mine.data()), mine.bytes());
        RC_ASSERT(everywhere(ranks().broadcast(bytes) == bytes));
    }
}

RC_GTEST_PROP(EveryAlgorithm, SumsIntegersExactly, ()) {
    Case c = any_case();
    c.type = DataType::int64;
    const std::vector<int> any_order = balanced_order(ranks().size());
    const test::Elements expected = sum_in(any_order, c);
    for (const Algorithm algorithm : all_algorithms())
        RC_ASSERT(everywhere(result_of(algorithm, c) == expected));
}

RC_GTEST_PROP(Tree, SumsInTheBalancedOrderForAnyNumberOfRanks, ()) {
    Case c = any_case();
    if (c.type == DataType::bfloat16) c.type = DataType::float32;  // rounded on each level instead
    RC_ASSERT(
        everywhere(result_of(Algorithm::tree, c) == sum_in(balanced_order(ranks().size()), c)));
}

RC_GTEST_PROP(RecursiveDoubling, SumsInTheBalancedOrderForPowersOfTwo, ()) {
    Case c = any_case();
    if (c.type == DataType::bfloat16) c.type = DataType::float64;
    const bool is_power = std::has_single_bit(static_cast<unsigned>(ranks().size()));
    const test::Elements result = result_of(Algorithm::recursive_doubling, c);
    if (is_power) RC_ASSERT(everywhere(result == sum_in(balanced_order(ranks().size()), c)));
}

RC_GTEST_PROP(ParameterServer, SumsInRankOrderAndRoundsOnce, ()) {
    const Case c = any_case();
    std::vector<int> in_rank_order(static_cast<std::size_t>(ranks().size()), 1);
    in_rank_order[0] = 0;
    RC_ASSERT(everywhere(result_of(Algorithm::parameter_server, c) == sum_in(in_rank_order, c)));
}

}  // namespace
