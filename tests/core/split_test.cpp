// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/split.hpp"

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::ElementsAre;

TEST(Split, GivesWhatLiesBetweenTheSeparators) {
    EXPECT_THAT(split("a,bc,d", ','), ElementsAre("a", "bc", "d"));
    EXPECT_THAT(split("a:b,c", ':'), ElementsAre("a", "b,c"));
}

TEST(Split, KeepsWhatIsEmpty) {
    EXPECT_THAT(split("", ','), ElementsAre(""));
    EXPECT_THAT(split(",a,,", ','), ElementsAre("", "a", "", ""));
}

}  // namespace
}  // namespace lockstep
