// SPDX-License-Identifier: Apache-2.0
// What lockstep-gpu-selftest says of sums: nothing wrong of right ones, and an error of each way in
// which NCCL or a kernel can be wrong.
#include "selftest/selftest.hpp"

#include "comm/nccl/fake_ranks.hpp"
#include "nccl/tree_sum.hpp"
#include "support/unit.hpp"

#include <array>

#include <fmt/format.h>

namespace {

using namespace lockstep;
using namespace lockstep::test;

constexpr std::array<std::size_t, 3> small_counts = {1000, 777, 1};

class SelftestTest : public FakeRanksTest {
  protected:
    using Damage = std::function<void(NcclApi&, CudaApi&)>;

    /// What each of `ranks` throws, with functions that `damage` changed.
    Errors errors_of(int ranks, const Damage& damage) {
        return run(ranks, [&](const FakeRank& rank) {
            auto calls = std::make_unique<NcclApi>(nccl.api());
            auto gpu = std::make_unique<CudaApi>(cuda.api(
                {fmt::format("GPU-{}", rank.rank), fmt::format("0000:0{}:00.0", rank.rank)}));
            damage(*calls, *gpu);
            const auto runtime =
                std::make_shared<GpuRuntime>(std::move(calls), std::move(gpu), "a fake NCCL");
            const std::string said = lockstep::check_sums(runtime, rank.bootstrap, small_counts);
            EXPECT_THAT(said, HasSubstr("3 steps of whole numbers in the tree's order, whole"));
        });
    }

    /// A kernel that sums what `change` makes of its launch.
    template <class Change>
    void expect_wrong_kernel(Change change, const std::string& kind) {
        expect_wrong(
            [change](NcclApi&, CudaApi& gpu) {
                gpu.sum_in_tree_order = [change, call = gpu.sum_in_tree_order](auto launch,
                                                                               auto stream) {
                    change(launch);
                    return call(launch, stream);
                };
            },
            kind);
    }
    void expect_wrong(const Damage& damage, const std::string& kind) {
        for (const auto& error : errors_of(3, damage))
            EXPECT_THAT(text_of(error), has("error E679: ", kind));
    }
};

/// Of `count` elements the last one is left out.
template <class Function>
void leave_out_last(Function& function) {
    function = [call = function](auto from, auto to, std::size_t count, auto... others) {
        return call(from, to, count - 1, others...);
    };
}

TEST_F(SelftestTest, FindsNothingWrongWithAnyNumberOfRanks) {
    for (const int ranks : {1, 2, 3, 4})
        expect_no_errors(errors_of(ranks, [](NcclApi&, CudaApi&) {}));
}

TEST_F(SelftestTest, SeesAKernelThatLeavesOutAnElement) {
    expect_wrong_kernel([](TreeSumLaunch& launch) { --launch.count; },
                        "whole numbers in the tree's order, step 0: value ");
}

TEST_F(SelftestTest, SeesAKernelThatAddsInAnotherOrder) {
    // As if its own partials lay at another place in the tree.
    expect_wrong_kernel(
        [](TreeSumLaunch& launch) { launch.own_first += launch.own_first == 0 ? 1 : -1; },
        "gradients in the tree's order, step 0: value ");
}

TEST_F(SelftestTest, SeesAReduceScatterThatLeavesOutAnElement) {
    expect_wrong(
        [](NcclApi& calls, CudaApi&) {
            leave_out_last(calls.reduce_scatter);
            leave_out_last(calls.reduce);
        },
        "whole numbers in NCCL's order, step 0: value ");
}

TEST_F(SelftestTest, SeesASumOfIntegersThatLeavesOutAnElement) {
    expect_wrong(
        [](NcclApi& calls, CudaApi&) {
            calls.all_reduce = [call = calls.all_reduce](
                                   auto from, auto to, std::size_t count, int type, auto... more) {
                const bool is_of_integers = type == lockstep::nccl::type_int64;
                return call(from, to, is_of_integers ? count - 1 : count, type, more...);
            };
        },
        "whole numbers in the tree's order, step 0: integer 999 is ");
}

}  // namespace
