// SPDX-License-Identifier: Apache-2.0
#include "support/rank_printer.hpp"

#include <cstdio>
#include <sstream>

#include <fmt/format.h>

namespace lockstep::test {

void RankPrinter::OnTestStart(const testing::TestInfo& test) {
    current_ = fmt::format("{}.{}", test.test_suite_name(), test.name());
}

void RankPrinter::OnTestPartResult(const testing::TestPartResult& result) {
    if (!result.failed()) return;
    const char* file = result.file_name() == nullptr ? "?" : result.file_name();
    std::string text = fmt::format(
        "[rank {}] {}:{}: failure in {}\n", rank_, file, result.line_number(), current_);
    std::istringstream lines(result.message());
    for (std::string line; std::getline(lines, line);)
        text += fmt::format("[rank {}]   {}\n", rank_, line);
    std::fputs(text.c_str(), stderr);
}

}  // namespace lockstep::test
