// SPDX-License-Identifier: Apache-2.0
// Threads that act as ranks, each with a GPU, an NCCL and a bootstrap that are made up; and a
// stand-in for training on such a GPU.
#pragma once

#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/error.hpp"

#include "comm/nccl/fake_cuda.hpp"
#include "comm/nccl/fake_nccl.hpp"
#include "comm/reference.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

/// Steps of training: everything on one stream, nothing waited for.
class GpuSteps {
  public:
    GpuSteps(const FakeRank& rank,
             NcclCommunicator& communicator,
             const FlatLayout& layout,
             const TreePlan& plan)
        : cuda_(rank.cuda),
          api_(cuda_.api({})),
          layout_(layout),
          plan_(plan),
          rank_(rank.rank),
          caller_(cuda_.make_stream()),
          exchange_(make_nccl_exchange(communicator, layout, plan, caller_)) {}

    GpuExchange& exchange() { return *exchange_; }
    GpuStream caller() const { return caller_; }

    /// Does `work` when the stream comes to it.
    template <class Work>
    void then(Work work) {
        cuda_.then(caller_, std::move(work));
    }
    /// Gradients of `step`.
    void fill(std::uint64_t step) {
        for (const Partial& partial : plan_.partials_of_rank(rank_))
            then([to = exchange_->slot(partial.slot),
                  values = slot_values(layout_, plan_, partial, step)] {
                std::ranges::copy(values, to);
            });
    }
    void arrive() {
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) exchange_->arrive(b);
    }
    /// The sums become the values.
    void reduce() {
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
            const float* sum = exchange_->reduce(b, Wait::yes);
            const FloatRange own = exchange_->own_stripe(b);
            api_.copy_async(
                exchange_->values() + own.begin, sum, own.size() * sizeof(float), caller_);
        }
    }
    void run(std::uint64_t step) {
        fill(step);
        arrive();
        reduce();
        exchange_->publish();
    }

    /// All values when the stream comes here: to be looked at after wait().
    std::shared_ptr<const Floats> read_values() {
        auto values = std::make_shared<Floats>(layout_.size());
        then([from = exchange_->values(), values] {
            std::copy_n(from, values->size(), values->data());
        });
        return values;
    }

    /// Until both the exchange and the stream are done.
    void wait() {
        exchange_->wait();
        CudaApi::Event end = nullptr;
        api_.create_event(&end);
        api_.record_event(end, caller_);
        while (api_.query_event(end) != CudaApi::success) std::this_thread::yield();
        api_.destroy_event(end);
    }

  private:
    FakeCuda& cuda_;
    CudaApi api_;
    FlatLayout layout_;
    TreePlan plan_;
    int rank_;
    GpuStream caller_;
    std::unique_ptr<GpuExchange> exchange_;
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
