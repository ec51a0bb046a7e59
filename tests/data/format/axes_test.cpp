// SPDX-License-Identifier: Apache-2.0
#include "lockstep/data/manifest.hpp"

#include <tuple>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

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
