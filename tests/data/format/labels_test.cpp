// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include "support/caught.hpp"

#include <tuple>

#include <gmock/gmock.h>

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

Field field_with(const std::vector<std::uint64_t>& occurring,
                 const std::string& name = "labels",
                 std::vector<std::int64_t> shape = {}) {
    Field field{.name = name, .type = ElementType::i64, .shape = std::move(shape)};
    for (const std::uint64_t number : occurring) {
        field.class_counts.resize(std::max(field.class_counts.size(), number + 1));
        field.class_counts[number] = 3;
    }
    return field;
}

std::string masks_text(const std::vector<std::uint64_t>& occurring) {
    return unused_classes_text(field_with(occurring, "masks", {4, 4}));
}

TEST(ClassUse, SaysNothingWhereAllOccur) {
    EXPECT_EQ(unused_classes_text(field_with({0, 1, 2})), "");
    EXPECT_EQ(unused_classes_text(field_with({0, 3}, "tokens", {8})), "")
        << "a vocabulary has more";
    EXPECT_EQ(unused_classes_text({.name = "features", .shape = {3}}), "");
}

TEST(ClassUse, NamesWhatIsNotThere) {
    EXPECT_EQ(unused_classes_text(field_with({0, 1, 2, 3, 5})),
              "labels: 1 of 6 classes does not occur: 4");
    Field named = field_with({1, 2});
    named.class_names = {"cat", "dog", "2"};
    EXPECT_EQ(unused_classes_text(named), "labels: 1 of 3 classes does not occur: 0 (cat)");
}

TEST(ClassUse, KnowsNumbersThatBeginAtOne) {
    EXPECT_THAT(unused_classes_text(field_with({1, 2, 3, 4})),
                HasSubstr("1 of 5 classes does not occur: 0. If they are numbered from 1"));
    EXPECT_THAT(unused_classes_text(field_with({1, 2, 3, 4})), HasSubstr("y = y - 1"));
}

TEST(ClassUse, ProposesNumbersWhereFewOccur) {
    EXPECT_THAT(masks_text({0, 127, 255}),
                HasSubstr("masks: 253 of 256 classes do not occur: only 0, 127 and 255 do"));
    EXPECT_THAT(masks_text({0, 127, 255}), HasSubstr("m = numpy.searchsorted([0, 127, 255], m)"));
    std::vector<std::uint64_t> many;
    for (std::uint64_t i = 0; i < 30; ++i) many.push_back(3 * i);
    EXPECT_THAT(unused_classes_text(field_with(many)), HasSubstr("27 and 20 more"));
    EXPECT_THAT(unused_classes_text(field_with(many)),
                HasSubstr("numpy.searchsorted(numpy.unique(y), y)"));
}

TEST(ClassUse, KnowsWhatIsUsuallyVoid) {
    EXPECT_THAT(masks_text({0, 1, 2, 255}),
                HasSubstr("255 looks like void: train --ignore-index 255 leaves it out"));
    EXPECT_THAT(masks_text({0, 255}), Not(HasSubstr("void"))) << "of two, 255 is what is there";
    EXPECT_THAT(unused_classes_text(field_with({0, 1, 255})), Not(HasSubstr("void")));
}

TEST(ClassUse, RefusesNumbersThatAreNoClasses) {
    const auto refused = [](const Field& field) {
        return test::caught_text([&] { check_class_numbers(field); });
    };
    EXPECT_THAT(refused(field_with({0, 1, 2, 999'999})),
                HasSubstr("E210: 'labels' has 1,000,000 classes, of which 4 occur"));
    EXPECT_THAT(refused(field_with({0, 999'999})), HasSubstr("searchsorted([0, 999999], y)"));
    EXPECT_EQ(refused(field_with({0, 9'999})), "") << "a warning is enough";
    EXPECT_EQ(refused(field_with({0, 50'000}, "tokens", {8})), "");
}

Field field_of(std::vector<std::int64_t> shape, const std::string& layout = "") {
    return {.name = "images", .shape = std::move(shape), .layout = layout};
}

TEST(Axes, AreThoseThatTrainingTakes) {
    EXPECT_EQ(axes_text(field_of({3, 8, 9})), "C 3, H 8, W 9");
    EXPECT_EQ(axes_text(field_of({3, 8, 9}, "CHW")), "C 3, H 8, W 9");
    EXPECT_EQ(axes_text(field_of({8, 9, 3}, "HWC")), "C 3, H 8, W 9 (stored H, W, C)");
    EXPECT_EQ(axes_text(field_of({8, 9})), "H 8, W 9");
    EXPECT_EQ(axes_text(field_of({8})), "");
    EXPECT_EQ(axes_text({.name = "boxes", .shape = {8, 4}}), "");
    EXPECT_EQ(axes_text({.name = "masks", .shape = {8, 9}, .layout = "HW"}), "H 8, W 9");
}

TEST(Axes, AreGuessedOnlyWhereSizesLeaveNoQuestion) {
    for (const auto& [a, b, c] : {std::tuple{224, 224, 3},
                                  {32, 32, 13},
                                  {5, 2, 3},
                                  {16, 16, 13},
                                  {16, 16, 64},
                                  {480, 640, 200}})
        EXPECT_TRUE(may_have_channels_last({a, b, c})) << a << " " << b << " " << c;
    for (const auto& [a, b, c] : {std::tuple{3, 224, 224},
                                  {1, 28, 28},
                                  {13, 32, 32},
                                  {1, 28, 1},
                                  {4, 4, 4},
                                  {3, 480, 640},
                                  {64, 7, 7}})
        EXPECT_FALSE(may_have_channels_last({a, b, c})) << a << " " << b << " " << c;
}

}  // namespace
}  // namespace lockstep
