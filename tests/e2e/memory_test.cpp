// SPDX-License-Identifier: Apache-2.0
// What a training takes of the machine besides its processors.
#include "program.hpp"
#include "small_data.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

namespace lockstep::test {
namespace {

long faults_of_children() {
    rusage used{};
    ::getrusage(RUSAGE_CHILDREN, &used);
    return used.ru_minflt + used.ru_majflt;
}

// Of one rank, whose steps use 20 MB.
long faults_of_training(int steps) {
    const TempDir folder;
    const long before = faults_of_children();
    const auto trained =
        run_lockstep(Words{"train", "--data", SmallData::get().train(), "--run", folder / "run"} +
                     Words{"--model", "cnn", "--batch", "60", "--checkpoint-every", "never"} +
                     Words{"--max-steps", std::to_string(steps)});
    EXPECT_EQ(trained.exit_code, 0) << trained.output;
    return faults_of_children() - before;
}

TEST(Memory, OfAStepIsThatOfTheStepBefore) {
    const long few = faults_of_training(10);
    EXPECT_LT(faults_of_training(40) - few, 3000);
}

}  // namespace
}  // namespace lockstep::test
