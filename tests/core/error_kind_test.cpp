// SPDX-License-Identifier: Apache-2.0
#include "lockstep/core/error_kind.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(ErrorKind, NamesWhatCallersActOn) {
    EXPECT_EQ(kind_of(Error("E632", "no room")), ErrorKind::no_shared_memory);
    EXPECT_EQ(kind_of(Error("E201", "no file")), ErrorKind::file_missing);
    EXPECT_EQ(kind_of(Error("E213", "wrong hash")), ErrorKind::data_damaged);
    EXPECT_EQ(kind_of(Error("E101", "a word")), ErrorKind::other);
}

TEST(ErrorKind, SaysWhoseDoingAnErrorIs) {
    EXPECT_EQ(blame_of_code("E204"), Blame::own);
    EXPECT_EQ(blame_of_code("E660"), Blame::peer);
    EXPECT_EQ(blame_of_code("E682"), Blame::peer);
    EXPECT_EQ(blame_of_code("E620"), Blame::unsure);
}

TEST(ErrorKind, EachOfItsCodesIsInTheCatalogue) {
    const auto with_kind = std::ranges::count_if(error_catalog(), [](const ErrorEntry& entry) {
        return kind_of(Error(entry.code, "")) != ErrorKind::other;
    });
    EXPECT_EQ(with_kind, 24) << "a code in error_kind.cpp that error_catalog.cpp does not have";
}

}  // namespace
}  // namespace lockstep
