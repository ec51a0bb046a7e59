// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/environment.hpp"

#include "support/caught.hpp"

#include <gmock/gmock.h>
#include <stdlib.h>

namespace lockstep {
namespace {

using testing::Contains;
using testing::ElementsAre;
using Variables = std::map<std::string, std::string>;

TEST(Environment, ReadsTextAndNumbers) {
    const Environment environment(Variables{{"A", "x y"}, {"N", "-7"}, {"EMPTY", ""}});
    EXPECT_EQ(environment.text("A"), "x y");
    EXPECT_EQ(environment.text("EMPTY"), "");
    EXPECT_EQ(environment.text("NONE"), std::nullopt);
    EXPECT_EQ(environment.integer("N"), -7);
    EXPECT_EQ(environment.integer("NONE"), std::nullopt);
}

TEST(Environment, NamesAVariableThatIsNoNumber) {
    const Environment environment(Variables{{"LOCKSTEP_THREADS", "two"}});
    EXPECT_EQ(
        test::caught_text([&] { static_cast<void>(environment.integer("LOCKSTEP_THREADS")); }),
        "lockstep: error E113: LOCKSTEP_THREADS is 'two' (from environment)\n"
        "  why: it must be a whole number\n"
        "  fix: unset LOCKSTEP_THREADS or set it to a whole number");
}

TEST(Environment, RemembersWhatWasAsked) {
    const Environment environment(Variables{{"A", "1"}, {"B", "2"}});
    static_cast<void>(environment.integer("A"));
    static_cast<void>(environment.text("C"));
    const auto& readings = environment.readings();
    ASSERT_EQ(readings.size(), 2u);
    EXPECT_EQ(readings.at("A").value, "1");
    EXPECT_TRUE(readings.at("A").is_set);
    EXPECT_FALSE(readings.at("C").is_set);
}

TEST(Environment, ListsNamesByPrefix) {
    const Environment environment(Variables{{"SLURM_A", ""}, {"SLURM_B", ""}, {"OTHER", ""}});
    EXPECT_THAT(environment.names_with_prefix("SLURM_"), ElementsAre("SLURM_A", "SLURM_B"));
}

TEST(Environment, IsTheProcesssOwnByDefault) {
    ::setenv("LOCKSTEP_TEST_VARIABLE", "here", 1);
    const Environment environment;
    EXPECT_EQ(environment.text("LOCKSTEP_TEST_VARIABLE"), "here");
    EXPECT_THAT(environment.names_with_prefix("LOCKSTEP_TEST_"),
                Contains("LOCKSTEP_TEST_VARIABLE"));
    ::unsetenv("LOCKSTEP_TEST_VARIABLE");
    EXPECT_EQ(environment.text("LOCKSTEP_TEST_VARIABLE"), std::nullopt);
}

}  // namespace
}  // namespace lockstep
