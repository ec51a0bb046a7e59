// SPDX-License-Identifier: Apache-2.0
// What ranks other than 0 show of a GoogleTest run: their failures only, each line with the rank.
#pragma once

#include <string>

#include <gtest/gtest.h>

namespace lockstep::test {

/// Prints failures as "[rank 2] file:line: failure in Suite.Name" in one write each.
class RankPrinter : public testing::EmptyTestEventListener {
  public:
    explicit RankPrinter(int rank) : rank_(rank) {}

  private:
    void OnTestStart(const testing::TestInfo& test) override;
    void OnTestPartResult(const testing::TestPartResult& result) override;

    int rank_;
    std::string current_ = "the program";
};

}  // namespace lockstep::test
