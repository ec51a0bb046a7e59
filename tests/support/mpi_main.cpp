// SPDX-License-Identifier: Apache-2.0
// The main of test programs that run on several ranks.
#include "lockstep/comm/communicator.hpp"
#include "lockstep/core/error.hpp"

#include "support/deadline.hpp"
#include "support/mpi_test.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace lockstep::test {
namespace {

const Communicator* all_ranks = nullptr;

/// Keeps the board up to date and the ranks together: no rank begins a test before all ended the
/// last one, so that a message is never taken for another test's. Ranks other than 0 print their
/// failures alone, as "[rank 2] file:line: failure in Suite.Name" in one write each.
class Pace : public testing::EmptyTestEventListener {
  public:
    Pace(const Communicator& ranks, ProgressBoard& board) : ranks_(ranks), board_(board) {}

  private:
    void OnTestStart(const testing::TestInfo& test) override {
        board_.enter(fmt::format("{}.{}", test.test_suite_name(), test.name()));
    }
    void OnTestEnd(const testing::TestInfo& test) override {
        board_.enter(fmt::format("the end of {}.{}", test.test_suite_name(), test.name()));
        ranks_.barrier();
    }
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (ranks_.is_root() || !result.failed()) return;
        const char* file = result.file_name() == nullptr ? "?" : result.file_name();
        std::string text = fmt::format("[rank {}] {}:{}: failure in {}\n",
                                       ranks_.rank(),
                                       file,
                                       result.line_number(),
                                       board_.mine().test.data());
        std::istringstream lines(result.message());
        for (std::string line; std::getline(lines, line);)
            text += fmt::format("[rank {}]   {}\n", ranks_.rank(), line);
        std::fputs(text.c_str(), stderr);
    }

    const Communicator ranks_;
    ProgressBoard& board_;
};

double deadline_s() {
    const char* text = std::getenv("LOCKSTEP_TEST_DEADLINE_S");
    return text == nullptr ? 600.0 : std::atof(text);
}

void make_quiet() {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    GTEST_FLAG_SET(output, "");
}

/// Properties draw the same cases on all ranks.
void share_random_seed(const Communicator& ranks) {
    const char* given = std::getenv("RC_PARAMS");
    std::string params = given == nullptr ? "" : given;
    if (params.empty())
        params = fmt::format("seed={}", testing::UnitTest::GetInstance()->random_seed());
    ::setenv("RC_PARAMS", ranks.broadcast(params).c_str(), 1);
}

/// Collective. The worst exit code of all ranks; rank 0 names the ranks that failed.
int agreed_exit_code(const Communicator& ranks, int mine) {
    std::array<std::int64_t, 1> worst = {mine};
    std::vector<int> failed;
    const std::vector<std::string> codes = ranks.all_gather(std::to_string(mine));
    for (int rank = 0; rank < ranks.size(); ++rank)
        if (codes[static_cast<std::size_t>(rank)] != "0") failed.push_back(rank);
    ranks.all_reduce_max(worst);
    if (ranks.is_root() && !failed.empty())
        fmt::print(stderr, "[  FAILED  ] on rank(s) {} of {}\n", fold_ranks(failed), ranks.size());
    return static_cast<int>(worst[0]);
}

int run_all(const Communicator& world) {
    ProgressBoard board(world);
    Deadline deadline(deadline_s(), world, board);
    if (!world.is_root()) make_quiet();
    share_random_seed(world);
    testing::UnitTest::GetInstance()->listeners().Append(new Pace(world.duplicate(), board));
    const int mine = RUN_ALL_TESTS();
    board.enter("the end of the program");
    return agreed_exit_code(world, mine);
}

}  // namespace

const Communicator& ranks() {
    return *all_ranks;
}

}  // namespace lockstep::test

int main(int argc, char** argv) {
    lockstep::MpiSession session;
    testing::InitGoogleTest(&argc, argv);
    const lockstep::Communicator world = lockstep::Communicator::world();
    const lockstep::Communicator tests = world.duplicate();
    lockstep::test::all_ranks = &tests;
    return lockstep::test::run_all(world);
}
