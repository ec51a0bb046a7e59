// SPDX-License-Identifier: Apache-2.0
#include "check/inspection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

using testing::HasSubstr;

// One data set of a file.
std::string text_of(InspectedData data, std::size_t columns) {
    if (data.size.empty()) data.size = {0};
    data.classes_in_rows = data.size[0];
    return inspection_text({.title = "a.h5", .all = {std::move(data)}}, columns);
}

TEST(InspectionText, GoesOnInFurtherLinesOfANarrowTerminal) {
    const InspectedData data{
        .name = "/g/data", .type = "u8", .size = {60000, 28, 28}, .storage = "contiguous"};
    EXPECT_THAT(text_of(data, 80), HasSubstr("g/\n  data  u8 [60,000, 28, 28]  contiguous\n"));
    EXPECT_THAT(text_of(data, 30), HasSubstr("  data  u8 [60,000, 28, 28]\n      contiguous\n"));
    EXPECT_THAT(text_of(data, 1),
                HasSubstr("  data\n      u8 [60,000, 28, 28]\n      contiguous\n"))
        << "what is longer stays whole";
    EXPECT_EQ(text_of({.name = "/a\x1b[2J/x"}, 80).find('\x1b'), std::string::npos);
}

TEST(InspectionText, DrawsABarForEachClass) {
    const InspectedData named{.name = "y",
                              .class_names = {"cat", "dog", "no\x1b"},
                              .class_counts = {1000, 1, 0},
                              .are_classes_numbered = true};
    EXPECT_THAT(text_of(named, 80),
                HasSubstr("  0 cat  1,000  ########################################\n"
                          "  1 dog      1  #\n"
                          "  2 no?      0  \n"));
    const InspectedData numbers{.name = "y", .class_names = {"-1", "7"}, .class_counts = {4, 2}};
    EXPECT_THAT(text_of(numbers, 11), HasSubstr("  -1  4  ##\n  7   2  #\n"));
    const std::string many =
        text_of({.name = "y", .class_counts = std::vector<std::uint64_t>(100, 1)}, 20);
    EXPECT_THAT(many, HasSubstr("\n  19  1  ###########\n  and 80 more\n"));
}

}  // namespace
}  // namespace lockstep
