// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/losses.hpp"

#include <cmath>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

TEST(LossError, DoesNotBlameTheLearningRateForTheFirstStep) {
    const Error error = loss_error(std::nan(""), 1, {});
    EXPECT_EQ(error.code(), "E701");
    EXPECT_THAT(error.what(), HasSubstr("is nan at step 1"));
    EXPECT_THAT(error.why(),
                AllOf(HasSubstr("no weight has changed yet"), Not(HasSubstr("thread"))));
    EXPECT_THAT(error.fix(), AllOf(Not(HasSubstr("--lr")), HasSubstr("scale inputs and targets")));
}

TEST(LossError, NamesThreadsWhereThereAreSeveral) {
    TrainSettings settings;
    settings.threads = 2;
    const Error first = loss_error(std::nan(""), 1, settings);
    EXPECT_THAT(first.why(), HasSubstr("went wrong on 2 threads"));
    EXPECT_THAT(first.fix(), HasSubstr("--threads 1"));
    const Error later = loss_error(HUGE_VAL, 7, settings);
    EXPECT_THAT(later.why(), AllOf(HasSubstr("diverged"), HasSubstr("2 threads")));
    EXPECT_THAT(later.fix(), AllOf(HasSubstr("--lr"), HasSubstr("--threads 1")));
}

TEST(LossError, KnowsThatFp16EndsEarly) {
    TrainSettings settings;
    settings.precision = Precision::fp16;
    const Error error = loss_error(HUGE_VAL, 7, settings);
    EXPECT_THAT(error.why(), HasSubstr("65,504"));
    EXPECT_THAT(error.fix(), HasSubstr("--precision bf16"));
}

TEST(LossError, SpeaksOfDivergenceLater) {
    const Error error = loss_error(HUGE_VAL, 2, {});
    EXPECT_THAT(error.why(), AllOf(HasSubstr("diverged"), Not(HasSubstr("thread"))));
    EXPECT_THAT(error.fix(), HasSubstr("the last checkpoint is good"));
}

TEST(ScaleError, SaysHowLowItIs) {
    const Error error = scale_error(0x1p-15, 31);
    EXPECT_EQ(error.code(), "E701");
    EXPECT_THAT(error.what(), HasSubstr("has fallen to 3.05e-05 at step 31"));
    EXPECT_THAT(error.fix(), HasSubstr("--precision bf16"));
}

TEST(SkippedError, CountsSteps) {
    EXPECT_THAT(skipped_error(100, 340).what(),
                HasSubstr("100 steps in a row were skipped, the last is step 340"));
}

}  // namespace
}  // namespace lockstep
