// SPDX-License-Identifier: Apache-2.0
#include "lockstep/observe/step_budget.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

StepBudget budget_of(std::int64_t step) {
    StepBudget budget{.step = step, .ended_unix_s = 1e9 + static_cast<double>(step), .phases = {}};
    budget.phases[static_cast<std::size_t>(Phase::forward)] = 0.25;
    budget.phases[static_cast<std::size_t>(Phase::wait)] = 0.5;
    return budget;
}

TEST(StepBudgets, AreReadBackAsTheyWereWritten) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 3);
    EXPECT_EQ(path.filename(), "rank-00003.steps");
    {
        StepBudgetFile file(path);
        for (std::int64_t step = 11; step <= 110; ++step) file.add(budget_of(step));
    }
    const auto steps = read_step_budgets(path);
    ASSERT_EQ(steps.size(), 100u);
    EXPECT_EQ(steps.front().step, 11);
    EXPECT_EQ(steps.back().step, 110);
    EXPECT_EQ(steps.back().ended_unix_s, 1e9 + 110);
    EXPECT_EQ(steps.back().wall_s(), 0.75);
    EXPECT_EQ(steps.back().own_s(), 0.25);
}

TEST(StepBudgets, KeepTheNewestStepsInABoundedFile) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 0);
    {
        StepBudgetFile file(path, 100);
        for (std::int64_t step = 1; step <= 250; ++step) file.add(budget_of(step));
    }
    EXPECT_EQ(fs::file_size(path), 64u * 101);
    const auto steps = read_step_budgets(path);
    ASSERT_EQ(steps.size(), 100u);
    EXPECT_EQ(steps.front().step, 151);
    EXPECT_EQ(steps.back().step, 250);
}

TEST(StepBudgets, AreOfWholeStepsThoughTheyCameInParts) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 0);
    {
        StepBudgetFile file(path);
        file.add(budget_of(1));
        file.add(budget_of(2));
        StepBudget rest = budget_of(2);
        rest.ended_unix_s += 5;
        file.add(rest);
    }
    const auto steps = read_step_budgets(path);
    ASSERT_EQ(steps.size(), 2u);
    EXPECT_EQ(steps[1].wall_s(), 1.5);
    EXPECT_EQ(steps[1].ended_unix_s, 1e9 + 7);
}

TEST(StepBudgets, AreEmptyWithoutAFileAndRefuseAForeignOne) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 0);
    EXPECT_TRUE(read_step_budgets(path).empty());
    write_file_atomically(path, std::string(200, 'x'));
    EXPECT_EQ(test::caught_code([&] { read_step_budgets(path); }), "E222");
}

}  // namespace
}  // namespace lockstep
