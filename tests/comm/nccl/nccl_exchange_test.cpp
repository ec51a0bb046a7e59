// SPDX-License-Identifier: Apache-2.0
// GPUs of several processes against the CPU's exchange: equal bits. NCCL and CUDA are made up; the
// bytes go through MPI.
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/log.hpp"

#include "comm/nccl/fake_nccl.hpp"
#include "comm/nccl/gpu_steps.hpp"
#include "comm/nccl/mpi_wire.hpp"
#include "support/mpi_test.hpp"

#include <bit>
#include <set>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::Floats;
using lockstep::test::GpuSteps;
using lockstep::test::ranks;
using lockstep::test::same_bits;

constexpr std::uint64_t steps = 3;
const std::vector<std::size_t> counts = {900, 40, 16, 2000, 1, 0, 700};
constexpr std::size_t state_count = 50;

FlatLayout layout_of(std::size_t limit) {
    return {counts, state_count, BucketLimits{limit, 2 * limit}};
}

/// As few leaves as can be, which is a power of two, and more.
std::set<int> numbers_of_leaves() {
    const int fewest = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks().size())));
    return {fewest, std::max(fewest, 8), 64};
}

/// This process's.
class NcclExchangeTest : public testing::Test {
  protected:
    NcclExchangeTest() {
        LogTarget quiet;
        quiet.terminal_level = Level::error;
        open_log(quiet);
        options.environment = Environment(std::map<std::string, std::string>{});
        nccl.wire = std::make_shared<test::MpiWire>(ranks());
    }
    ~NcclExchangeTest() override { EXPECT_THAT(cuda.violations(), testing::IsEmpty()); }

    NcclCommunicator communicator() {
        const auto gpu = fmt::format("0000:{:02x}:00.0", ranks().rank());
        auto runtime = std::make_shared<GpuRuntime>(
            std::make_unique<NcclApi>(nccl.api()),
            std::make_unique<CudaApi>(cuda.api({"GPU-" + gpu, gpu, "fake", 1})),
            "a fake NCCL");
        return {std::move(runtime), *bootstrap, options};
    }

    test::FakeCuda cuda;
    test::FakeNccl nccl{cuda};
    std::unique_ptr<Bootstrap> bootstrap = make_bootstrap(ranks());
    NcclOptions options;
};

/// The values of each step by the exchange between CPUs.
std::vector<Floats> values_by_cpus(const FlatLayout& layout, const TreePlan& plan) {
    const auto exchange = make_exchange(ranks(), layout, plan, Transport::mpi);
    std::vector<Floats> values;
    for (std::uint64_t step = 0; step < steps; ++step) {
        for (const Partial& partial : plan.partials_of_rank(ranks().rank()))
            std::ranges::copy(test::slot_values(layout, plan, partial, step),
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

std::vector<Floats> values_by_gpus(NcclCommunicator& communicator,
                                   const FlatLayout& layout,
                                   const TreePlan& plan,
                                   test::FakeCuda& cuda) {
    GpuSteps gpu(communicator, layout, plan, cuda);
    std::vector<std::shared_ptr<const Floats>> read;
    for (std::uint64_t step = 0; step < steps; ++step) {
        gpu.run(step);
        read.push_back(gpu.read_values());
    }
    gpu.wait();
    std::vector<Floats> values;
    for (const auto& floats : read) values.push_back(*floats);
    return values;
}

TEST_F(NcclExchangeTest, HasTheBitsOfTheCpusExchangeStepAfterStep) {
    NcclCommunicator gpus = communicator();
    for (const int virtual_ranks : numbers_of_leaves()) {
        const TreePlan plan(virtual_ranks, ranks().size());
        for (const std::size_t limit : {64u, 1024u, 5000u, 1u << 20}) {
            const FlatLayout layout = layout_of(limit);
            const std::vector<Floats> expected = values_by_cpus(layout, plan);
            const std::vector<Floats> got = values_by_gpus(gpus, layout, plan, cuda);
            for (std::size_t step = 0; step < steps; ++step)
                EXPECT_TRUE(same_bits(got[step], expected[step]))
                    << virtual_ranks << " leaves, buckets of " << limit << ", step " << step;
            EXPECT_TRUE(same_bits(got[1], test::whole_tree(layout, virtual_ranks, 1)));
        }
    }
}

// Sums inside nodes of two first, and then of four, where as many ranks are there.
TEST_F(NcclExchangeTest, HasTheBitsOfTheCpusExchangeOnSeveralNodes) {
    for (const int of_a_node : {2, 4}) {
        const auto node = std::to_string(ranks().rank() / of_a_node);
        options.environment =
            Environment(std::map<std::string, std::string>{{"NCCL_HOSTID", node}});
        NcclCommunicator gpus = communicator();
        const TreePlan plan(64, ranks().size());
        const FlatLayout layout = layout_of(1024);
        const std::vector<Floats> expected = values_by_cpus(layout, plan);
        const std::vector<Floats> got = values_by_gpus(gpus, layout, plan, cuda);
        for (std::size_t step = 0; step < steps; ++step)
            EXPECT_TRUE(same_bits(got[step], expected[step])) << of_a_node << ", step " << step;
    }
}

TEST_F(NcclExchangeTest, HasOtherBitsWithPlainSums) {
    NcclCommunicator gpus = communicator();
    const FlatLayout layout = layout_of(1024);
    const TreePlan plan(64, ranks().size(), Summation::plain);
    const std::vector<Floats> got = values_by_gpus(gpus, layout, plan, cuda);
    EXPECT_FALSE(same_bits(got[0], test::whole_tree(layout, 64, 0)));
    // Two numbers have one sum, whatever NCCL does.
    EXPECT_TRUE(ranks().size() > 2 || same_bits(got[0], values_by_cpus(layout, plan)[0]));
}

TEST_F(NcclExchangeTest, SumsExactlyWhereNoOrderMatters) {
    NcclCommunicator gpus = communicator();
    for (const Summation summation : {Summation::tree, Summation::plain}) {
        const FlatLayout layout = layout_of(1000);
        const TreePlan plan(64, ranks().size(), summation);
        GpuSteps gpu(gpus, layout, plan, cuda);
        for (const Partial& partial : plan.partials_of_rank(ranks().rank()))
            cuda.enqueue(gpu.caller(), [&, to = gpu.exchange().slot(partial.slot)] {
                std::fill_n(to, layout.size(), static_cast<float>(ranks().rank() + 1));
                return true;
            });
        gpu.arrive();
        gpu.reduce();
        gpu.exchange().publish();
        const auto values = gpu.read_values();
        gpu.wait();
        float sum = 0;
        for (const Partial& partial : plan.partials()) sum += static_cast<float>(partial.rank + 1);
        EXPECT_EQ(std::ranges::count(*values, sum), static_cast<std::ptrdiff_t>(layout.size()));
    }
}

// Leaf by leaf into slots that the reducer clears and merges, as training does.
TEST_F(NcclExchangeTest, IsDrivenByTheReducerAsTheCpusExchangesAre) {
    NcclCommunicator gpus = communicator();
    const FlatLayout layout = layout_of(1024);
    const TreePlan plan(64, ranks().size());
    GpuSteps gpu(gpus, layout, plan, cuda);
    GpuExchange& exchange = gpu.exchange();
    Reducer reducer(layout, plan, ranks().rank(), exchange);
    const LeafRange leaves = leaves_of(ranks().rank(), ranks().size(), 64);
    for (std::uint64_t step = 0; step < 2; ++step) {
        reducer.begin_step();
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            float* const slot = reducer.begin_leaf();
            cuda.enqueue(gpu.caller(), [&layout, slot, step, leaf] {
                // Added, as backward does: a slot that is not cleared shows.
                for (std::size_t i = 0; i < layout.size(); ++i)
                    slot[i] += test::hard_value(step, leaf, i);
                return true;
            });
            for (std::size_t tensor = counts.size(); tensor-- > 0;) reducer.add(tensor);
            reducer.end_leaf();
        }
        reducer.finish();
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const FloatRange own = exchange.own_stripe(b);
            exchange.memory().copy(exchange.values() + own.begin, reducer.reduced(b), own.size());
        }
        exchange.publish();
        Floats values(layout.size());
        exchange.memory().wait();
        exchange.memory().copy(values.data(), exchange.values(), values.size());
        exchange.memory().wait();
        EXPECT_TRUE(same_bits(values, test::whole_tree(layout, 64, step))) << "step " << step;
    }
}

TEST_F(NcclExchangeTest, BeginsWithZerosAndPublishesValuesBeforeAnyStep) {
    NcclCommunicator gpus = communicator();
    const FlatLayout layout = layout_of(300);
    GpuSteps gpu(gpus, layout, TreePlan(64, ranks().size()), cuda);
    EXPECT_EQ(gpu.exchange().name(), "nccl");
    const auto zeros = gpu.read_values();
    for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
        const FloatRange own = gpu.exchange().own_stripe(b);
        EXPECT_EQ(own, layout.stripe(b, ranks().rank(), ranks().size()));
        cuda.enqueue(gpu.caller(), [to = gpu.exchange().values() + own.begin, own] {
            std::fill_n(to, own.size(), 7.0f);
            return true;
        });
    }
    gpu.exchange().publish();
    const auto values = gpu.read_values();
    gpu.wait();
    EXPECT_EQ(std::ranges::count(*zeros, 0.0f), static_cast<std::ptrdiff_t>(layout.size()));
    EXPECT_EQ(std::ranges::count(*values, 7.0f), static_cast<std::ptrdiff_t>(layout.size()));
    EXPECT_GE(gpu.exchange().take_wait_s(), 0.0);
}

}  // namespace
