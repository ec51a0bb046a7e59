// SPDX-License-Identifier: Apache-2.0
// Threads that act as ranks, each with a GPU, an NCCL and a bootstrap that are made up.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"

#include "comm/nccl/fake_cuda.hpp"
#include "comm/nccl/fake_nccl.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace lockstep::test {

/// What the bootstraps of one group of threads share.
struct Board {
    explicit Board(int ranks)
        : size(ranks),
          gathers(static_cast<std::size_t>(ranks)),
          notices(static_cast<std::size_t>(ranks)) {}
    int size;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::vector<std::string>> gathers;  ///< by rank, then by gather
    std::vector<std::deque<Notice>> notices;        ///< to each rank
};

class ThreadBootstrap : public Bootstrap {
  public:
    ThreadBootstrap(std::shared_ptr<Board> board, int rank)
        : board_(std::move(board)), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return board_->size; }
    std::vector<std::optional<std::string>> gather_within(const std::string& bytes,
                                                          double deadline_s) override;
    void announce(const std::string& text) override;
    std::optional<Notice> notice() override;

  private:
    std::shared_ptr<Board> board_;
    int rank_;
};

/// One thread's view of itself.
struct FakeRank {
    int rank;
    std::shared_ptr<GpuRuntime> runtime;
    Bootstrap& bootstrap;
    NcclOptions options;
    FakeCuda& cuda;

    NcclCommunicator communicator(const std::string& name = "gradients") const;
};

/// What each rank threw.
using Errors = std::vector<std::optional<Error>>;

/// The whole text of what a rank threw, or "no error".
inline std::string text_of(const std::optional<Error>& error) {
    return error ? error->text() : "no error";
}

/// The code of what a rank threw, or "".
inline std::string code_of(const std::optional<Error>& error) {
    return error ? error->code() : "";
}

/// A fixture: set up the fakes, then run(ranks, what each does).
class FakeRanksTest : public testing::Test {
  protected:
    FakeRanksTest();
    ~FakeRanksTest() override;

    /// What each rank threw. No violation may have been seen when it returns.
    Errors run(int ranks, const std::function<void(const FakeRank&)>& body);
    /// The same, of ranks that only start a communicator.
    Errors started(int ranks) {
        return run(ranks, [](const FakeRank& rank) { rank.communicator(); });
    }
    static void expect_no_errors(const Errors& errors) {
        for (const auto& error : errors) EXPECT_FALSE(error) << error->text();
    }
    /// How often all ranks together made this call.
    std::ptrdiff_t calls_of(std::string_view call) {
        return std::ranges::count(nccl.calls(), call);
    }

    FakeCuda cuda;
    FakeNccl nccl{cuda};
    NcclOptions options;
    std::function<void(int rank, CudaDeviceFacts&, NcclOptions&)> vary =
        [](int, CudaDeviceFacts&, NcclOptions&) {};
};

}  // namespace lockstep::test
