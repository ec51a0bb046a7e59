// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/bucket_hook.hpp"
#include "lockstep/comm/reducer.hpp"

#include "support/caught.hpp"
#include "support/mpi_test.hpp"

#include <algorithm>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace {

using namespace lockstep;
using lockstep::test::ranks;

constexpr int virtual_ranks = 4;
const std::vector<std::size_t> counts = {900, 40, 16, 2000, 1, 0, 700};

struct Variant {
    Transport transport;
    ProgressMode mode;
    WireFormat format;
};

std::vector<Variant> variants() {
    std::vector<Variant> all;
    for (const Transport transport : {Transport::shared_memory, Transport::mpi})
        for (const ProgressMode mode : {ProgressMode::in_line, ProgressMode::thread})
            for (const WireFormat format : {WireFormat::bfloat16, WireFormat::float16})
                all.push_back({transport, mode, format});
    return all;
}

struct Training {
    explicit Training(const Variant& variant)
        : carrier(make_all_reduce(ranks(), Algorithm::tree)),
          hook(make_wire_hook(variant.format, ranks(), *carrier)),
          exchange(make_hooked_exchange(
              make_exchange(ranks(), layout, plan, variant.transport), layout, plan, *hook)),
          reducer(layout, plan, ranks().rank(), *exchange, {variant.mode, {}}) {}

    /// Gradients of `gradient`, state of `state`, in every leaf.
    void run_step(float gradient, float state) {
        reducer.begin_step();
        const int leaves = leaves_of(ranks().rank(), ranks().size(), virtual_ranks).size();
        for (int leaf = 0; leaf < leaves; ++leaf) {
            float* slot = reducer.begin_leaf();
            std::fill(slot + layout.state().begin, slot + layout.state().end, state);
            for (std::size_t tensor = counts.size(); tensor-- > 0;) {
                const FloatRange range = layout.tensor(tensor);
                std::fill(slot + range.begin, slot + range.end, gradient);
                reducer.add(tensor);
            }
            reducer.end_leaf();
        }
        reducer.finish();
        for (std::size_t b = 0; b < layout.bucket_count(); ++b) {
            const FloatRange own = exchange->own_stripe(b);
            std::copy_n(reducer.reduced(b), own.size(), exchange->values() + own.begin);
        }
        exchange->publish();
    }

    FlatLayout layout{counts, 50, BucketLimits{1024, 4096}};
    TreePlan plan{virtual_ranks, ranks().size(), Summation::plain};
    std::unique_ptr<AllReduce> carrier;
    std::unique_ptr<BucketHook> hook;
    std::unique_ptr<Exchange> exchange;
    Reducer reducer;
};

TEST(HookedExchange, SumsGradientsByItsHookAndStateExactly) {
    constexpr float state = 1.0f + 0x1p-20f;  // no half holds it
    for (const Variant& variant : variants()) {
        Training training(variant);
        for (int step = 1; step <= 5; ++step) {
            training.run_step(static_cast<float>(step), state);
            const float* values = training.exchange->values();
            for (std::size_t t = 0; t < counts.size(); ++t) {
                const FloatRange range = training.layout.tensor(t);
                const auto expected = static_cast<float>(step * virtual_ranks);
                EXPECT_EQ(std::count(values + range.begin, values + range.end, expected),
                          static_cast<std::ptrdiff_t>(range.size()));
            }
            const FloatRange range = training.layout.state();
            EXPECT_EQ(std::count(values + range.begin, values + range.end, state * virtual_ranks),
                      static_cast<std::ptrdiff_t>(range.size()));
            ranks().barrier();
        }
        const std::uint64_t gradients = training.layout.state().begin * sizeof(float);
        EXPECT_EQ(training.hook->take_volume().gradient_bytes,
                  ranks().size() == 1 ? 0u : 5 * gradients);
    }
}

TEST(HookedExchange, IsForPlainSumsOnly) {
    const FlatLayout layout(counts, 50);
    const TreePlan plan(virtual_ranks, ranks().size());
    const auto carrier = make_all_reduce(ranks(), Algorithm::tree);
    const auto hook = make_wire_hook(WireFormat::bfloat16, ranks(), *carrier);
    auto inner = make_exchange(ranks(), layout, plan);
    EXPECT_EQ(
        test::caught_code([&] { make_hooked_exchange(std::move(inner), layout, plan, *hook); }),
        "E700");
}

}  // namespace
