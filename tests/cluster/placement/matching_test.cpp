// SPDX-License-Identifier: Apache-2.0
#include "placement/gpu_choice.hpp"
#include "placement_cases.hpp"

#include <algorithm>
#include <numeric>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(PathClass, HasNvidiasWords) {
    const auto node = node_of("dgx");
    const auto name = [&](const std::string& a, const std::string& b) {
        PciPlace left, right;
        left.path = a;
        right.path = b;
        left.numa_node = 0;
        right.numa_node = a[3] == b[3] ? 0 : 1;
        return path_class_name(path_between(node, left, right));
    };
    const std::string port = "pci0:16/16:01.0/", upstream = port + "17:00.0/";
    EXPECT_EQ(name(port + "17:00.0", port + "17:00.1"), "PIX") << "functions of one card";
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", upstream + "18:04.0/1a:00.0"), "PIX");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", upstream + "18:04.0/20:00.0/21:00.0/22:00.0"),
              "PXB");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", "pci0:16/16:02.0/30:00.0"), "PHB");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", "pci0:40/40:02.0/41:00.0"), "NODE");
    EXPECT_EQ(name(upstream + "18:00.0/19:00.0", "pci8:40/40:02.0/41:00.0"), "SYS");
    EXPECT_EQ(path_class_name(path_between(node, node.gpus[0], node.gpus[7])), "NV18");
}

TEST(PathClass, IsUnknownWhereFirmwareNamesNoNumaNode) {
    auto node = node_of("dgx");
    PciPlace left, right;
    left.path = "pci0:16/16:01.0";
    right.path = "pci0:40/40:01.0";
    EXPECT_EQ(path_class_name(path_between(node, left, right)), "-");
    node.numa_nodes.resize(1);
    EXPECT_EQ(path_class_name(path_between(node, left, right)), "NODE");
}

TEST(Matching, KeepsOrderAmongEquals) {
    EXPECT_THAT(cheapest_pairs({{1, 1, 1}, {1, 1, 1}}), ElementsAre(0, 1));
    EXPECT_THAT(cheapest_pairs({{5, 0}, {0, 5}}), ElementsAre(1, 0));
    EXPECT_THAT(cheapest_pairs({}), IsEmpty());
}

TEST(Matching, GoesRowByRowWhereThereAreMany) {
    std::vector<std::vector<std::int64_t>> costs(17, std::vector<std::int64_t>(17, 3));
    costs[0][16] = 0;
    const auto pairs = cheapest_pairs(costs);
    EXPECT_EQ(pairs[0], 16);
    EXPECT_EQ(pairs[1], 1) << "its own number, of equal ones";
    EXPECT_EQ(pairs[16], 0) << "what is left";
}

RC_GTEST_PROP(Matching, IsTheCheapestOfAllPermutations, ()) {
    const auto size = *rc::gen::inRange<std::size_t>(1, 6);
    std::vector<std::vector<std::int64_t>> costs;
    for (std::size_t row = 0; row < size; ++row)
        costs.push_back(*rc::gen::container<std::vector<std::int64_t>>(
            size, rc::gen::inRange<std::int64_t>(0, 50)));
    const auto total = [&](const std::vector<int>& columns) {
        std::int64_t sum = 0;
        for (std::size_t row = 0; row < size; ++row)
            sum += costs[row][static_cast<std::size_t>(columns[row])];
        return sum;
    };
    std::vector<int> columns(size);
    std::iota(columns.begin(), columns.end(), 0);
    auto best = total(columns);
    while (std::ranges::next_permutation(columns).found) best = std::min(best, total(columns));
    RC_ASSERT(total(cheapest_pairs(costs)) == best);
}

}  // namespace
}  // namespace lockstep::test
