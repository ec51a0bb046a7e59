// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/step_budget.hpp"

#include "support/caught.hpp"
#include "support/temp_dir.hpp"

#include <fstream>
#include <limits>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

StepBudget budget_of(std::int64_t step) {
    StepBudget budget{.step = step, .ended_unix_s = 1e9 + static_cast<double>(step), .phases = {}};
    budget.phases[Phase::forward] = 0.25;
    budget.phases[Phase::wait] = 0.5;
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

TEST(StepBudgets, CanBeReadASecondLaterWhileARunGoesOn) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 0);
    StepBudgetFile file(path);
    for (std::int64_t step = 1; step <= 12; ++step) {
        StepBudget budget = budget_of(step);
        budget.ended_unix_s = 1e9 + 0.25 * static_cast<double>(step);
        file.add(budget);
    }
    EXPECT_EQ(read_step_budgets(path).size(), 10u) << "after 1.25 s and 2.5 s";
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

/// Writes `value` over what is at byte `offset` of a file.
template <class Value>
void overwrite(const fs::path& path, std::size_t offset, Value value) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(reinterpret_cast<const char*>(&value), sizeof value);
}

TEST(StepBudgets, LeaveOutWhatDamageMadeSenseless) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 0);
    {
        StepBudgetFile file(path);
        for (std::int64_t step = 1; step <= 6; ++step) file.add(budget_of(step));
    }
    const auto place = [](std::size_t number) { return 64 * number; };
    overwrite(path, place(1) + 16, std::numeric_limits<float>::quiet_NaN());
    overwrite(path, place(2) + 16, std::numeric_limits<float>::infinity());
    overwrite(path, place(3) + 20, -1e30F);
    overwrite(path, place(4) + 8, std::numeric_limits<double>::quiet_NaN());
    overwrite(path, place(5), std::int64_t{-5});
    const auto steps = read_step_budgets(path);
    ASSERT_EQ(steps.size(), 1u);
    EXPECT_EQ(steps.front().step, 6);
    EXPECT_EQ(steps.front().wall_s(), 0.75);
}

TEST(StepBudgets, AreRefusedByAnErrorWhereTheFileCannotBeReached) {
    const test::TempDir folder;
    const fs::path path = step_budgets_path(folder.path(), 0);
    fs::create_symlink(path.filename(), path);
    EXPECT_EQ(test::caught_code([&] { read_step_budgets(path); }), "E402");
}

}  // namespace
}  // namespace lockstep
