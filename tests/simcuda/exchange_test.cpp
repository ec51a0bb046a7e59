// SPDX-License-Identifier: Apache-2.0
// The exchange between simulated GPUs, as programs load it: it has the bits of the CPUs' exchange
// however late streams are, a wait that is left out is seen, and faults end all ranks.
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/log.hpp"

#include "comm/reference.hpp"
#include "nccl/cuda_api.hpp"
#include "simcuda/nccl_comm.hpp"
#include "simcuda/settings.hpp"
#include "support/mpi_test.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace lockstep;
using lockstep::test::Floats;
using lockstep::test::ranks;
using simcuda::simulate;

constexpr int seeds = 20, steps = 3, virtual_ranks = 8;
constexpr int most_seeds = 200;  // until what is wrong is seen
constexpr const char* delay_us = "600";

/// A rank's GPU with a communicator, made as `lockstep train` makes it.
class Gpu {
  public:
    /// What other ranks are told must reach them before anyone ends.
    ~Gpu() {
        communicator_.reset();
        ranks().barrier();
    }

    NcclCommunicator& start(double deadline_s = 60) {
        NcclOptions options;
        options.environment = Environment(std::map<std::string, std::string>{});
        options.device = ranks().rank();
        options.init_deadline_s = 2 * deadline_s;
        options.collective_deadline_s = deadline_s;
        return communicator_.emplace(runtime_, *bootstrap_, options);
    }
    const CudaApi& cuda() const { return runtime_->cuda(); }

  private:
    std::unique_ptr<Bootstrap> bootstrap_ = make_bootstrap(ranks());
    std::shared_ptr<GpuRuntime> runtime_ = GpuRuntime::open();
    std::optional<NcclCommunicator> communicator_;
};

/// Host memory that copies reach while the host goes on. Left behind where they may still do so.
class LockedFloats {
  public:
    LockedFloats(const CudaApi& cuda, std::size_t count)
        : cuda_(cuda), floats_(std::make_unique<Floats>(count)) {
        check_cuda(
            cuda_, cuda_.lock_pages(floats_->data(), count * sizeof(float)), "cudaHostRegister");
    }
    ~LockedFloats() {
        if (wait_for_default_stream() == CudaApi::success)
            cuda_.unlock_pages(floats_->data());
        else
            static_cast<void>(floats_.release());
    }
    LockedFloats(const LockedFloats&) = delete;
    LockedFloats& operator=(const LockedFloats&) = delete;

    Floats& floats() { return *floats_; }

  private:
    CudaApi::Status wait_for_default_stream() const {
        CudaApi::Event end = nullptr;
        if (const auto lost = cuda_.create_event(&end)) return lost;
        CudaApi::Status status = cuda_.record_event(end, nullptr);
        while (status == CudaApi::success && cuda_.query_event(end) == CudaApi::not_ready)
            std::this_thread::yield();
        if (status == CudaApi::success) status = cuda_.query_event(end);
        cuda_.destroy_event(end);
        return status;
    }

    const CudaApi& cuda_;
    std::unique_ptr<Floats> floats_;
};

/// Steps of a caller whose work is copies on CUDA's default stream.
class GpuSteps {
  public:
    GpuSteps(const CudaApi& cuda,
             NcclCommunicator& communicator,
             const FlatLayout& layout,
             const TreePlan& plan)
        : cuda_(cuda),
          layout_(layout),
          plan_(plan),
          exchange_(make_nccl_exchange(communicator, layout, plan, nullptr)) {
        exchange_->wait();
    }

    /// The values of each step.
    std::vector<Floats> run() {
        std::vector<std::unique_ptr<LockedFloats>> read;
        for (int step = 0; step < steps; ++step) {
            for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
                fill(b, static_cast<std::uint64_t>(step));
                exchange_->arrive(b);
            }
            for (std::size_t b = 0; b < layout_.bucket_count(); ++b) take_sum(b);
            exchange_->publish();
            read.push_back(std::make_unique<LockedFloats>(cuda_, layout_.size()));
            copy(read.back()->floats().data(), exchange_->values(), layout_.size());
        }
        exchange_->wait();
        std::vector<Floats> values;
        for (const auto& locked : read) values.push_back(locked->floats());
        return values;
    }

  private:
    void copy(float* to, const float* from, std::size_t count) {
        check_cuda(cuda_, cuda_.copy_async(to, from, count * sizeof(float), nullptr), "a copy");
    }
    void fill(std::size_t bucket, std::uint64_t step) {
        const FloatRange range = layout_.bucket(bucket);
        for (const Partial& partial : plan_.partials_of_rank(ranks().rank())) {
            const Floats values = test::slot_values(layout_, plan_, partial, step);
            copy(exchange_->slot(partial.slot) + range.begin,
                 values.data() + range.begin,
                 range.size());
        }
    }
    void take_sum(std::size_t bucket) {
        const float* const sum = exchange_->reduce(bucket, Wait::yes);
        const FloatRange own = exchange_->own_stripe(bucket);
        copy(exchange_->values() + own.begin, sum, own.size());
    }

    const CudaApi& cuda_;
    const FlatLayout layout_;
    const TreePlan plan_;
    std::unique_ptr<GpuExchange> exchange_;
};

std::vector<Floats> values_by_cpus(const FlatLayout& layout, const TreePlan& plan) {
    const auto exchange = make_exchange(ranks(), layout, plan, Transport::mpi);
    std::vector<Floats> values;
    for (int step = 0; step < steps; ++step) {
        for (const Partial& partial : plan.partials_of_rank(ranks().rank()))
            std::ranges::copy(
                test::slot_values(layout, plan, partial, static_cast<std::uint64_t>(step)),
                exchange->slot(partial.slot));
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) exchange->arrive(b);
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const FloatRange own = exchange->own_stripe(b);
            std::copy_n(exchange->reduce(b, Wait::yes), own.size(), exchange->values() + own.begin);
        }
        exchange->publish();
        values.emplace_back(exchange->values(), exchange->values() + layout.size());
        ranks().barrier();
    }
    return values;
}

bool are_equal(const std::vector<Floats>& a, const std::vector<Floats>& b) {
    return std::ranges::equal(a, b, test::same_bits);
}

/// On any rank.
bool on_any(bool mine) {
    std::int64_t number = mine ? 1 : 0;
    ranks().all_reduce_max({&number, 1});
    return number != 0;
}

/// The first seed with which it is not right on all ranks, where one wait is left out; 0: none.
/// `is_right` begins to be late by what it is given.
template <class IsRight>
int first_wrong(int most, const std::string& left_out, const IsRight& is_right) {
    for (int seed = 1; seed <= most; ++seed) {
        const bool mine = is_right([&] {
            simulate(
                {{"DELAY_US", delay_us}, {"SEED", std::to_string(seed)}, {"DROP_WAIT", left_out}});
        });
        simulate({});
        if (on_any(!mine)) return seed;
    }
    return 0;
}

FlatLayout layout_of(std::size_t limit) {
    return {std::vector<std::size_t>{900, 40, 2000, 1, 700}, 50, BucketLimits{limit, 2 * limit}};
}

class SimulatedExchange : public testing::Test {
  protected:
    SimulatedExchange() { open_log({.terminal_level = Level::error}); }
    ~SimulatedExchange() override { simulate({}); }
};

TEST_F(SimulatedExchange, HasTheBitsOfTheCpusExchangeHoweverLateItsStreamsAre) {
    Gpu gpu;
    NcclCommunicator& communicator = gpu.start();
    const TreePlan plan(virtual_ranks, ranks().size());
    for (const std::size_t limit : {1024u, 5000u, 1u << 20}) {
        const FlatLayout layout = layout_of(limit);
        const auto expected = values_by_cpus(layout, plan);
        GpuSteps exchange(gpu.cuda(), communicator, layout, plan);
        EXPECT_TRUE(are_equal(exchange.run(), expected));
        for (int seed = 1; seed <= seeds; ++seed) {
            simulate({{"DELAY_US", delay_us}, {"SEED", std::to_string(seed)}});
            EXPECT_TRUE(are_equal(exchange.run(), expected))
                << "buckets of " << limit << ", seed " << seed;
        }
        simulate({});
    }
}

TEST_F(SimulatedExchange, SaysHowMuchItSends) {
    Gpu gpu;
    const TreePlan plan(virtual_ranks, ranks().size(), Summation::plain);
    const FlatLayout layout = layout_of(1 << 20);
    GpuSteps exchange(gpu.cuda(), gpu.start(), layout, plan);
    const std::uint64_t before = simcuda::nccl_sent_bytes();
    exchange.run();
    auto sent = static_cast<std::int64_t>(simcuda::nccl_sent_bytes() - before);
    ranks().all_reduce_sum({&sent, 1});
    const auto bytes = static_cast<std::int64_t>(layout.size() * sizeof(float));
    EXPECT_EQ(sent, steps * 2 * (ranks().size() - 1) * bytes);
}

// With two buckets each step waits six times: the communicator for the slots of each, the caller
// for the sums of each, the communicator for values, the caller for the others' values.
TEST_F(SimulatedExchange, GoesWrongWithoutAnyOfItsWaits) {
    constexpr int waits = 6;
    Gpu gpu;
    NcclCommunicator& communicator = gpu.start();
    const TreePlan plan(virtual_ranks, ranks().size());
    const FlatLayout layout = layout_of(1 << 20);
    ASSERT_EQ(layout.bucket_count(), 2u);
    const auto expected = values_by_cpus(layout, plan);
    for (int wait = 1; wait <= waits; ++wait) {
        const auto is_right = [&](const auto& be_late) {
            GpuSteps exchange(gpu.cuda(), communicator, layout, plan);
            be_late();
            return are_equal(exchange.run(), expected);
        };
        EXPECT_GT(first_wrong(most_seeds, fmt::format("{}/{}", wait, waits), is_right), 0)
            << "wait " << wait;
    }
}

/// Integers of a GPU, written and read by copies on the caller's stream.
class IntegersOnGpu {
  public:
    IntegersOnGpu(const CudaApi& cuda, GpuExchange& exchange) : cuda_(cuda), exchange_(exchange) {
        check_cuda(cuda_, cuda_.allocate(&memory_, bytes), "cudaMalloc");
    }
    ~IntegersOnGpu() { cuda_.release(memory_); }
    IntegersOnGpu(const IntegersOnGpu&) = delete;
    IntegersOnGpu& operator=(const IntegersOnGpu&) = delete;

    /// Whether they are right after each of several sums.
    bool add_up() {
        bool is_right = true;
        for (std::int64_t sum = 0; sum < 3; ++sum) {
            LockedFloats given(cuda_, floats), found(cuda_, floats);
            std::vector<std::int64_t> mine(count), expected(count);
            for (std::int64_t i = 0; i < std::ssize(mine); ++i)
                for (std::int64_t rank = 0; rank < ranks().size(); ++rank) {
                    const std::int64_t number = (sum + 1) * (i << 40) * (rank + 1) - i;
                    expected[static_cast<std::size_t>(i)] += number;
                    if (rank == ranks().rank()) mine[static_cast<std::size_t>(i)] = number;
                }
            std::memcpy(given.floats().data(), mine.data(), bytes);
            copy(memory_, given.floats().data());
            exchange_.add_up(static_cast<std::int64_t*>(memory_), count);
            copy(found.floats().data(), memory_);
            exchange_.wait();
            is_right &= std::memcmp(found.floats().data(), expected.data(), bytes) == 0;
        }
        return is_right;
    }

  private:
    static constexpr std::size_t count = 300, bytes = count * sizeof(std::int64_t),
                                 floats = bytes / sizeof(float);

    void copy(void* to, const void* from) {
        check_cuda(cuda_, cuda_.copy_async(to, from, bytes, nullptr), "a copy");
    }

    const CudaApi& cuda_;
    GpuExchange& exchange_;
    void* memory_ = nullptr;
};

// The communicator waits for the caller's numbers, and the caller for the sums.
TEST_F(SimulatedExchange, AddsUpIntegersAndGoesWrongWithoutEitherOfItsWaits) {
    Gpu gpu;
    const TreePlan plan(virtual_ranks, ranks().size());
    const auto exchange = make_nccl_exchange(gpu.start(), layout_of(1024), plan, nullptr);
    IntegersOnGpu integers(gpu.cuda(), *exchange);
    exchange->wait();
    EXPECT_TRUE(integers.add_up());
    // wait() lets the communicator wait, too.
    constexpr int waits = 3;
    const auto is_right = [&](const auto& be_late) {
        be_late();
        return integers.add_up();
    };
    EXPECT_EQ(first_wrong(seeds, "1000000", is_right), 0);
    for (int wait = 1; wait < waits; ++wait)
        EXPECT_GT(first_wrong(most_seeds, fmt::format("{}/{}", wait, waits), is_right), 0)
            << "wait " << wait;
}

std::string error_of_steps(double deadline_s = 200) {
    const double begin = now_s();
    Gpu gpu;
    const std::string text = caught_text([&] {
        const TreePlan plan(virtual_ranks, ranks().size());
        GpuSteps(gpu.cuda(), gpu.start(deadline_s), layout_of(1024), plan).run();
    });
    EXPECT_LT(now_s() - begin, 100);
    return text;
}

TEST_F(SimulatedExchange, EndsWhereAGroupHangs) {
    for (const char* group : {"1:1", "1:5"}) {
        simulate({{"HANG", group}});
        EXPECT_THAT(error_of_steps(1),
                    AnyOf(HasSubstr("E676"), HasSubstr("E678"), HasSubstr("E682")))
            << group;
    }
}

TEST_F(SimulatedExchange, EndsWhereAGpuIsLost) {
    for (const char* call : {"1:1", "1:40", "1:80"}) {
        simulate({{"LOST", call}});
        EXPECT_THAT(error_of_steps(), AnyOf(HasSubstr("E681"), HasSubstr("E682"))) << call;
    }
}

TEST_F(SimulatedExchange, EndsWhereAGpuIsTooSmall) {
    simulate({{"MEMORY", "1:10000"}});
    EXPECT_THAT(error_of_steps(), HasSubstr(ranks().rank() == 1 ? "out of memory" : "cudaMalloc"));
}

TEST_F(SimulatedExchange, RefusesAnotherVersionOnOneRank) {
    simulate({{"NCCL_VERSION", "1:22703"}});
    EXPECT_THAT(error_of_steps(), HasSubstr("E674"));
}

}  // namespace
