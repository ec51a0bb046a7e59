// SPDX-License-Identifier: Apache-2.0
#include "lockstep/train/train.hpp"

#include "loop/inputs.hpp"
#include "support/unit.hpp"
#include "train/made_up_index.hpp"

#include <array>
#include <vector>

namespace lockstep {
namespace {

// Four samples of three numbers, of which the batch has the last two, with targets.
class SampleError : public testing::Test {
  protected:
    std::optional<Error> error(const TrainSettings& settings = {}) {
        return error_in(index_, settings);
    }
    std::string error_of_row_order(const std::string& order) {
        targets_[0] = std::nan("");
        return error_in(test::made_up_index(fields_, order), {})->why();
    }
    std::optional<Error> error_in(const DatasetIndex& index, const TrainSettings& settings) {
        const std::array<std::span<const std::byte>, 3> fields{std::as_bytes(std::span(features_)),
                                                               std::as_bytes(std::span(targets_)),
                                                               std::as_bytes(std::span(unused_))};
        const Batch batch{.sample_ids = ids_, .fields = fields};
        return sample_error(std::nan(""), 7, batch, index, settings);
    }

    const std::vector<Field> fields_{{.name = "features", .type = ElementType::f32, .shape = {3}},
                                     {.name = "targets", .type = ElementType::f64},
                                     {.name = "age", .type = ElementType::f32}};
    const DatasetIndex index_ = test::made_up_index(fields_);
    const std::vector<std::uint64_t> ids_{2, 3};
    std::vector<float> features_{0, 1, 2, 3, 4, 5}, unused_{0, 0};
    std::vector<double> targets_{0, 1};
};

TEST_F(SampleError, IsNoneWhereAllNumbersAreFinite) {
    EXPECT_FALSE(error());
    unused_[1] = HUGE_VALF;
    EXPECT_FALSE(error()) << "the model is not given it";
    EXPECT_TRUE(error({.inputs = "age"}));
}

TEST_F(SampleError, NamesSampleFieldAndRowOfInputsAndTargets) {
    features_[3] = std::nanf("");
    const auto found = error();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->code(), "E701");
    EXPECT_THAT(found->what(), HasSubstr("is nan at step 7"));
    EXPECT_THAT(found->why(),
                HasSubstr("'features' of sample 3 has nan: row 3 of '/data/features' in"));
    EXPECT_THAT(found->fix(), HasSubstr("--on-nonfinite skip"));
    features_[3] = 3;
    targets_[0] = -HUGE_VAL;
    EXPECT_THAT(error()->why(), HasSubstr("'targets' of sample 2 has -inf"));
}

TEST_F(SampleError, NamesFiniteNumbersWhoseSquareIsNot) {
    targets_[1] = -1e30;
    const auto found = error();
    ASSERT_TRUE(found);
    EXPECT_THAT(found->why(),
                HasSubstr("'targets' of sample 3 has -1e+30: row 3 of '/data/targets' in"));
    EXPECT_THAT(found->why(), HasSubstr("its square is beyond f32"));
    EXPECT_THAT(found->fix(), HasSubstr("scale 'targets' to numbers around 1"));
    targets_[0] = std::nan("");
    EXPECT_THAT(error()->why(), HasSubstr("sample 2 has nan")) << "that comes first";
    targets_ = {1, -1e30};
    TrainSettings scaled;
    scaled.task.scales_targets = true;
    EXPECT_FALSE(error(scaled)) << "the loss has them near 1";
    targets_ = {1e18, -1e18};
    EXPECT_FALSE(error());
}

TEST_F(SampleError, SaysWhereRowsAreNotThoseOfTheSource) {
    EXPECT_THAT(error_of_row_order("source"), Not(HasSubstr("shuffled")));
    EXPECT_THAT(error_of_row_order("shuffled:1"), HasSubstr("which packing shuffled"));
}

TEST(TrainModel, NamesThePathThatAProgramLeftOut) {
    const auto said = [](const TrainSettings& settings) {
        return test::caught_text([&] { train_model(settings, {}); });
    };
    EXPECT_THAT(said({}), HasSubstr("E105: TrainSettings has no data"));
    EXPECT_THAT(said({.data = "here"}), HasSubstr("E105: TrainSettings has no run"));
}

}  // namespace
}  // namespace lockstep
