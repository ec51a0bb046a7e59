// SPDX-License-Identifier: Apache-2.0
// Collectives with ranks grouped into nodes in every way, on whatever hosts they are.
#include "collectives/back_ends.hpp"
#include "comm/collectives/rounds.hpp"
#include "comm/hierarchical/groupings.hpp"
#include "hierarchical/back_end.hpp"
#include "support/caught.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;
using testing::HasSubstr;

TEST(Hierarchical, GivesTheBalancedSumsBitsInAnyMixOfCallsTypesCountsAndMemory) {
    std::uint64_t number = 0;
    for (const auto& [name, nodes] : all_nodes()) {
        const testing::ScopedTrace trace(__FILE__, __LINE__, name);
        CollectiveRounds rounds(make_hierarchical_collectives(nodes));
        rounds.lent();
        for (const std::uint64_t end = number + 30; number < end; ++number) rounds.play({number});
    }
}

TEST(Hierarchical, SumsMessagesOfManySegmentsFromAnyMemory) {
    for (const auto& [name, nodes] : some_nodes()) {
        const auto group = make_hierarchical_collectives(nodes);
        for (const DataType type : {DataType::float32, DataType::bfloat16}) {
            const std::size_t count = 5'000'003 / size_of(type);
            const auto fill = [&](std::byte* data, int rank) {
                const Elements pattern = hard_elements(type, 1000, 0, 7, rank);
                for (std::size_t i = 0; i < count; i += 1000)
                    std::copy_n(pattern.data(),
                                std::min<std::size_t>(1000, count - i) * size_of(type),
                                data + i * size_of(type));
            };
            std::vector<Elements> patterns;
            for (int rank = 0; rank < ranks().size(); ++rank)
                patterns.push_back(hard_elements(type, 1000, 0, 7, rank));
            const Elements sum = sum_by_elements(balanced_order(ranks().size()), patterns);
            std::vector<std::byte> own(count * size_of(type));
            for (std::byte* data : {own.data(), group->lend(own.size())}) {
                fill(data, ranks().rank());
                group->all_reduce(data, count, type);
                std::size_t wrong = 0;
                for (std::size_t i = 0; i < count; i += 1000)
                    wrong += !std::equal(
                        sum.data(),
                        sum.data() + std::min<std::size_t>(1000, count - i) * size_of(type),
                        data + i * size_of(type));
                EXPECT_EQ(wrong, 0u) << name << ", " << name_of(type);
            }
        }
    }
}

TEST(Hierarchical, NamesWhoDidNotComeToWhichCallUntilTheDeadline) {
    LOCKSTEP_NEEDS_RANKS(2);
    const int late = ranks().size() - 1;
    for (const auto& [name, nodes] : some_nodes()) {
        const auto group = make_hierarchical_collectives(nodes);
        group->barrier();
        if (ranks().rank() != late) {
            std::vector<float> data(20'000);
            group->set_deadline(0.2);
            const auto error =
                caught([&] { group->all_reduce(data.data(), data.size(), DataType::float32); });
            EXPECT_EQ(error ? error->code() : "", "E630") << name;
            EXPECT_THAT(error ? error->what() : "", HasSubstr(fmt::format("{} did not", late)))
                << name;
            EXPECT_THAT(error ? error->what() : "", HasSubstr("all-reduce of 20,000 float"))
                << name;
        }
        ranks().barrier();
    }
}

TEST(Hierarchical, IsMadeForTheRanksWhereverTheyAre) {
    const auto group = make_all_reduce(ranks(), Algorithm::hierarchical);
    EXPECT_EQ(group->name(), "hierarchical");
    auto* number = reinterpret_cast<std::int64_t*>(group->lend(8));
    *number = ranks().rank();
    group->all_reduce(number, 1, DataType::int64);
    EXPECT_EQ(*number, ranks().size() * (ranks().size() - 1) / 2);
}

}  // namespace
