// SPDX-License-Identifier: Apache-2.0
#include "tree_check.hpp"

#include "lockstep/comm/nccl_exchange.hpp"
#include "lockstep/core/error.hpp"
#include "lockstep/core/random.hpp"

#include "caller.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr int virtual_ranks = 8;
constexpr std::uint64_t steps = 3;

/// Both signs and 50 powers of two: sums in another order have other bits.
float gradient(std::uint64_t step, int leaf, std::size_t i) {
    const std::uint64_t bits = mix64(mix64(step * 1000 + static_cast<std::uint64_t>(leaf)) + i);
    const auto exponent = static_cast<std::uint32_t>(100 + (bits >> 40) % 50);
    return std::bit_cast<float>((static_cast<std::uint32_t>(bits) & 0x807fffffu) | exponent << 23);
}

float tree_of(std::uint64_t step, int first, int count, std::size_t i) {
    if (count == 1) return gradient(step, first, i);
    const float left = tree_of(step, first, count / 2, i);
    const float right = tree_of(step, first + count / 2, count / 2, i);
    return left + right;
}

/// One rank's steps, on the caller's stream.
class TreeTrial {
  public:
    TreeTrial(const Caller& caller, NcclCommunicator& communicator)
        : caller_(caller),
          rank_(communicator.rank()),
          plan_(virtual_ranks, communicator.size()),
          exchange_(make_nccl_exchange(communicator, layout_, plan_, caller.stream())) {}

    void run() {
        for (std::uint64_t step = 0; step < steps; ++step) run_step(step);
        exchange_->wait();
        caller_.wait();
        for (std::uint64_t step = 0; step < steps; ++step) check_values(step);
    }

  private:
    void run_step(std::uint64_t step) {
        for (const Partial& partial : plan_.partials_of_rank(rank_)) {
            std::vector<float>& values = filled_.emplace_back(layout_.size());
            for (std::size_t i = 0; i < values.size(); ++i)
                values[i] = tree_of(step, partial.first, partial.leaf_count(), i);
            copy(exchange_->slot(partial.slot), values.data(), values.size());
        }
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) exchange_->arrive(b);
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
            const FloatRange own = exchange_->own_stripe(b);
            copy(exchange_->values() + own.begin, exchange_->reduce(b, Wait::yes), own.size());
        }
        exchange_->publish();
        read_.emplace_back(layout_.size());
        copy(read_.back().data(), exchange_->values(), layout_.size());
    }

    void check_values(std::uint64_t step) const {
        const std::vector<float>& values = read_[step];
        for (std::size_t i = 0; i < values.size(); ++i) {
            const float expected = tree_of(step, 0, virtual_ranks, i);
            check(std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(expected),
                  [&] {
                      return Error(
                          "E679",
                          fmt::format(
                              "step {}: value {} is {:a}, not {:a}", step, i, values[i], expected),
                          "the GPU adds otherwise than the tree",
                          "please report it with the name of the GPU");
                  });
        }
    }

    void copy(void* to, const void* from, std::size_t floats) const {
        caller_.copy(to, from, floats * sizeof(float));
    }

    const std::vector<std::size_t> counts_ = {100000, 777, 1, 65536};
    const FlatLayout layout_{counts_, 100, BucketLimits{1 << 17, 1 << 18}};
    const Caller& caller_;
    int rank_;
    TreePlan plan_;
    std::vector<std::vector<float>> filled_, read_;  ///< until the stream is done with them
    std::unique_ptr<GpuExchange> exchange_;
};

}  // namespace

std::string check_tree(Bootstrap& bootstrap) {
    const auto runtime = GpuRuntime::open();
    NcclCommunicator communicator(runtime, bootstrap, selftest_options(sum_limit_s));
    const Caller caller(runtime);
    TreeTrial(caller, communicator).run();
    communicator.close();
    return fmt::format(
        "{}: {} steps with the bits of {} leaves", runtime->nccl_text(), steps, virtual_ranks);
}

}  // namespace lockstep
