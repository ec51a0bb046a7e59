// SPDX-License-Identifier: Apache-2.0
#include "lockstep/cluster/node_facts.hpp"

#include <set>

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace lockstep {
namespace {

using testing::ElementsAre;
using testing::Optional;

TEST(CpuList, ReadsRangesAndSingleCpus) {
    EXPECT_THAT(parse_cpu_list("0-3,8"), Optional(ElementsAre(0, 1, 2, 3, 8)));
    EXPECT_THAT(parse_cpu_list("5"), Optional(ElementsAre(5)));
    EXPECT_THAT(parse_cpu_list(""), Optional(ElementsAre()));
}

TEST(CpuList, SortsAndMergesOverlaps) {
    EXPECT_THAT(parse_cpu_list("8,0-2,1-3"), Optional(ElementsAre(0, 1, 2, 3, 8)));
}

TEST(CpuList, RefusesWhatIsNoList) {
    for (const auto* text : {"x", "1-", "-1", "3-1", "1,,2", "0-999999999", "1 2"}) {
        EXPECT_FALSE(parse_cpu_list(text)) << text;
    }
}

TEST(CpuList, WritesADashForNone) {
    EXPECT_EQ(cpu_list_text({}), "-");
}

RC_GTEST_PROP(CpuList, ComesBackFromItsText, ()) {
    const auto cpus =
        *rc::gen::nonEmpty(rc::gen::container<std::set<int>>(rc::gen::inRange(0, 300)));
    const std::vector<int> list(cpus.begin(), cpus.end());
    RC_ASSERT(parse_cpu_list(cpu_list_text(list)) == list);
}

}  // namespace
}  // namespace lockstep
