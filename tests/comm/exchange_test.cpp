// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/exchange.hpp"

#include "support/mpi_test.hpp"
#include "support/unit.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <thread>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

const std::vector<std::size_t> tensor_counts = {1000, 17, 1, 333};

int virtual_ranks_here() {
    return static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks().size())));
}

/// One leaf a rank (some have two, where ranks are no power of two).
struct Exchanging {
    FlatLayout layout{tensor_counts, 40, BucketLimits{256, 2048}};
    TreePlan plan;
    std::unique_ptr<Exchange> exchange;

    explicit Exchanging(Transport transport, ShardState shards = ShardState::node)
        : plan(virtual_ranks_here(), ranks().size()),
          exchange(make_exchange(ranks(), layout, plan, transport, shards)) {}

    FloatRange own(std::size_t bucket) const { return exchange->own_stripe(bucket); }
    void fill_slots(float value) {
        for (const Partial& partial : plan.partials_of_rank(ranks().rank()))
            std::fill_n(exchange->slot(partial.slot),
                        layout.size(),
                        value * static_cast<float>(partial.leaf_count()));
    }
    void arrive_everywhere() {
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) exchange->arrive(b);
    }
};

struct Way {
    const char* name;
    Transport transport;
    ShardState shards;
};

class EachTransport : public testing::TestWithParam<Way> {
  protected:
    static Exchanging make() { return Exchanging(GetParam().transport, GetParam().shards); }
};
INSTANTIATE_TEST_SUITE_P(
    Exchange,
    EachTransport,
    testing::Values(Way{"SharedMemory", Transport::shared_memory, ShardState::node},
                    Way{"SharedMemoryOfAll", Transport::shared_memory, ShardState::all},
                    Way{"Mpi", Transport::mpi, ShardState::node},
                    Way{"MpiOfAll", Transport::mpi, ShardState::all}),
    [](const auto& instance) { return instance.param.name; });

TEST_P(EachTransport, LendsAlignedMemoryThatBeginsAsZeros) {
    Exchanging x = make();
    const auto is_aligned = [](const float* memory) {
        return reinterpret_cast<std::uintptr_t>(memory) % 64 == 0;
    };
    const auto is_zero = [&](const float* memory) {
        return std::all_of(memory, memory + x.layout.size(), [](float v) { return v == 0; });
    };
    EXPECT_TRUE(is_aligned(x.exchange->values()));
    EXPECT_TRUE(is_zero(x.exchange->values()));
    for (int i = 0; i < x.plan.slots(); ++i) {
        EXPECT_TRUE(is_aligned(x.exchange->slot(i)));
        EXPECT_TRUE(is_zero(x.exchange->slot(i)));
    }
}

TEST_P(EachTransport, SumsAndPublishesStepAfterStep) {
    Exchanging x = make();
    for (int step = 1; step <= 100; ++step) {
        const auto number = static_cast<float>(step);
        x.fill_slots(number);
        x.arrive_everywhere();
        const float expected = number * static_cast<float>(x.plan.virtual_ranks());
        for (std::size_t b = 0; b < x.layout.bucket_count(); ++b) {
            const float* sum = x.exchange->reduce(b, Wait::yes);
            const auto is_expected = [&](float v) { return v == expected; };
            EXPECT_TRUE(std::all_of(sum, sum + x.own(b).size(), is_expected));
            std::copy_n(sum, x.own(b).size(), x.exchange->values() + x.own(b).begin);
        }
        x.exchange->publish();
        const float* values = x.exchange->values();
        EXPECT_EQ(std::count(values, values + x.layout.size(), expected),
                  static_cast<std::ptrdiff_t>(x.layout.size()));
        if (HasFailure()) break;
    }
    EXPECT_GE(x.exchange->take_wait_s(), 0.0);
    EXPECT_EQ(x.exchange->take_wait_s(), 0.0);
}

TEST_P(EachTransport, DoesNotReduceBeforeAllArrivedUnlessItMayWait) {
    LOCKSTEP_NEEDS_RANKS(2);
    Exchanging x = make();
    x.fill_slots(1);
    const bool is_late = ranks().rank() == 1;
    if (!is_late) {
        x.exchange->arrive(0);
        const float* sum = x.exchange->reduce(0, Wait::no);
        EXPECT_TRUE(sum == nullptr || x.own(0).size() == 0);
    }
    ranks().barrier();
    if (is_late) x.exchange->arrive(0);
    EXPECT_NE(x.exchange->reduce(0, Wait::yes), nullptr);
    for (std::size_t b = 1; b < x.layout.bucket_count(); ++b) x.exchange->arrive(b);
    for (std::size_t b = 1; b < x.layout.bucket_count(); ++b)
        EXPECT_NE(x.exchange->reduce(b, Wait::yes), nullptr);
    x.exchange->publish();
}

TEST_P(EachTransport, PublishesInitialValuesBeforeAnyStep) {
    Exchanging x = make();
    for (int round = 1; round <= 3; ++round) {
        for (std::size_t b = 0; b < x.layout.bucket_count(); ++b)
            std::fill_n(
                x.exchange->values() + x.own(b).begin, x.own(b).size(), static_cast<float>(round));
        x.exchange->publish();
        EXPECT_EQ(x.exchange->values()[0], static_cast<float>(round));
        EXPECT_EQ(x.exchange->values()[x.layout.size() - 1], static_cast<float>(round));
        ranks().barrier();
    }
}

TEST(Exchange, PicksTheTransportByWhereTheRanksAre) {
    const Exchanging x(Transport::automatic);
    EXPECT_EQ(x.exchange->name(), ranks().size() == 1 ? "one rank" : "shared memory");
    const Exchanging mpi(Transport::mpi);
    EXPECT_EQ(mpi.exchange->name(), ranks().size() == 1 ? "one rank" : "mpi");
}

TEST(Exchange, TellsForWhomItWaits) {
    LOCKSTEP_NEEDS_RANKS(2);
    Exchanging x(Transport::shared_memory);
    const std::vector<int> late = {1};
    EXPECT_EQ(x.exchange->awaited_ranks(), std::vector<int>());
    if (ranks().rank() == 1) {
        ranks().barrier();
        x.exchange->publish();
        return;
    }
    std::thread watcher([&] {
        while (x.exchange->awaited_ranks() != late) std::this_thread::yield();
        ranks().barrier();
    });
    x.exchange->publish();
    watcher.join();
    EXPECT_EQ(x.exchange->awaited_ranks(), std::vector<int>());
}

TEST(Exchange, SeveralLiveSideBySide) {
    Exchanging first(Transport::automatic), second(Transport::automatic);
    first.exchange->values()[first.own(0).begin] = 1;
    first.exchange->publish();
    EXPECT_EQ(second.exchange->values()[0], 0.0f);
    second.exchange->publish();
}

TEST(Exchange, SaysSoWhenSharedMemoryIsTooSmall) {
    LOCKSTEP_NEEDS_RANKS(2);
    const std::vector<std::size_t> enormous = {std::size_t{1} << 44};
    const FlatLayout layout(enormous, 0);
    const TreePlan plan(virtual_ranks_here(), ranks().size());
    EXPECT_EQ(caught_code([&] { make_exchange(ranks(), layout, plan, Transport::hierarchical); }),
              "E632")
        << "a window of petabytes";
}

}  // namespace
