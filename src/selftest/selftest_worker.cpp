// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/nccl_communicator.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/random.hpp"

#include "selftest.hpp"

#include <array>
#include <bit>
#include <csignal>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr double start_limit_s = 60, sum_limit_s = 60, killed_limit_s = 5, abort_limit_s = 10;
constexpr int virtual_ranks = 8;
constexpr std::uint64_t steps = 3;
constexpr std::size_t integers = 1000;

NcclOptions selftest_options(double collective_deadline_s) {
    NcclOptions options;
    options.name = "selftest";
    options.init_deadline_s = start_limit_s;
    options.collective_deadline_s = collective_deadline_s;
    options.abort_limit_s = abort_limit_s;
    return options;
}

/// The value that a leaf adds to element i in a step.
using LeafValue = float (*)(std::uint64_t step, int leaf, std::size_t i);

/// Both signs and 50 powers of two: sums in another order have other bits.
float gradient(std::uint64_t step, int leaf, std::size_t i) {
    const std::uint64_t bits = mix64(mix64(step * 1000 + static_cast<std::uint64_t>(leaf)) + i);
    const auto exponent = static_cast<std::uint32_t>(100 + (bits >> 40) % 50);
    return std::bit_cast<float>((static_cast<std::uint32_t>(bits) & 0x807fffffu) | exponent << 23);
}

/// So small that every order of adding gives the same.
float whole_number(std::uint64_t step, int leaf, std::size_t i) {
    return static_cast<float>((leaf + 1) * static_cast<int>(i % 5 + step + 1));
}

/// Halves added to halves: of all leaves, or a subtree of them, the order of the tree.
float sum_of(LeafValue value, std::uint64_t step, LeafRange leaves, std::size_t i) {
    if (leaves.end - leaves.begin == 1) return value(step, leaves.begin, i);
    const int middle = (leaves.begin + leaves.end) / 2;
    const float left = sum_of(value, step, {leaves.begin, middle}, i);
    const float right = sum_of(value, step, {middle, leaves.end}, i);
    return left + right;
}

std::int64_t integer_of(std::uint64_t step, int rank, std::size_t i) {
    return (std::int64_t{1} << 40) * (rank + 1) + static_cast<std::int64_t>(i + step);
}

struct TrialKind {
    const char* name;
    Summation summation;
    LeafValue value;
};
constexpr std::array kinds = {
    TrialKind{"whole numbers in the tree's order", Summation::tree, whole_number},
    TrialKind{"whole numbers in NCCL's order", Summation::plain, whole_number},
    TrialKind{"gradients in the tree's order", Summation::tree, gradient}};

Error wrong_sum(const TrialKind& kind, std::uint64_t step, const std::string& what) {
    return Error("E679",
                 fmt::format("{}, step {}: {}", kind.name, step, what),
                 "NCCL or a kernel of Lockstep sums wrongly on this machine",
                 "please report it with the name of the GPU and the output of NCCL_DEBUG=INFO");
}

/// One rank's steps, on the caller's stream. `numbers`: memory of the GPU for the integers.
class Trial {
  public:
    Trial(const Caller& caller,
          NcclCommunicator& communicator,
          const TrialKind& kind,
          std::span<const std::size_t> counts,
          const CudaMemory& numbers)
        : kind_(kind),
          layout_(counts, 100, BucketLimits{1 << 17, 1 << 18}),
          plan_(virtual_ranks, communicator.size(), kind.summation),
          caller_(caller),
          rank_(communicator.rank()),
          numbers_(static_cast<std::int64_t*>(numbers.value())),
          exchange_(make_nccl_exchange(communicator, layout_, plan_, caller.stream())) {}

    void run() {
        for (std::uint64_t step = 0; step < steps; ++step) run_step(step);
        exchange_->wait();
        caller_.wait();
        for (std::uint64_t step = 0; step < steps; ++step) check_step(step);
    }

    /// All buckets once more. Nothing is copied: that could wait inside CUDA for a rank that died.
    void exchange_again() {
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) exchange_->arrive(b);
        exchange_->wait();
    }

  private:
    void run_step(std::uint64_t step) {
        for (const Partial& partial : plan_.partials_of_rank(rank_)) fill(step, partial);
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) exchange_->arrive(b);
        for (std::size_t b = 0; b < layout_.bucket_count(); ++b) {
            const FloatRange own = exchange_->own_stripe(b);
            caller_.copy(exchange_->values() + own.begin,
                         exchange_->reduce(b, Wait::yes),
                         own.size() * sizeof(float));
        }
        add_integers(step);
        exchange_->publish();
        read_.emplace_back(layout_.size());
        caller_.copy(read_.back().data(), exchange_->values(), layout_.size() * sizeof(float));
    }

    void fill(std::uint64_t step, const Partial& partial) {
        const LeafRange leaves =
            plan_.summation() == Summation::tree
                ? LeafRange{partial.first, partial.first + partial.leaf_count()}
                : leaves_of(rank_, plan_.ranks(), virtual_ranks);
        std::vector<float>& values = filled_.emplace_back(layout_.size());
        for (std::size_t i = 0; i < values.size(); ++i)
            values[i] = sum_of(kind_.value, step, leaves, i);
        caller_.copy(exchange_->slot(partial.slot), values.data(), values.size() * sizeof(float));
    }

    void add_integers(std::uint64_t step) {
        std::vector<std::int64_t>& mine = integers_.emplace_back(integers);
        for (std::size_t i = 0; i < integers; ++i) mine[i] = integer_of(step, rank_, i);
        caller_.copy(numbers_, mine.data(), integers * sizeof(std::int64_t));
        exchange_->add_up(numbers_, integers);
        caller_.copy(mine.data(), numbers_, integers * sizeof(std::int64_t));
    }

    void check_step(std::uint64_t step) const {
        const std::vector<float>& values = read_[step];
        for (std::size_t i = 0; i < values.size(); ++i) {
            const float expected = sum_of(kind_.value, step, {0, virtual_ranks}, i);
            check(std::bit_cast<std::uint32_t>(values[i]) == std::bit_cast<std::uint32_t>(expected),
                  [&] {
                      return wrong_sum(
                          kind_,
                          step,
                          fmt::format("value {} is {:a}, not {:a}", i, values[i], expected));
                  });
        }
        for (std::size_t i = 0; i < integers; ++i) {
            std::int64_t expected = 0;
            for (int rank = 0; rank < plan_.ranks(); ++rank) expected += integer_of(step, rank, i);
            const std::int64_t found = integers_[step][i];
            check(found == expected, [&] {
                return wrong_sum(
                    kind_, step, fmt::format("integer {} is {}, not {}", i, found, expected));
            });
        }
    }

    const TrialKind& kind_;
    const FlatLayout layout_;
    const TreePlan plan_;
    const Caller& caller_;
    int rank_;
    std::int64_t* numbers_;
    std::vector<std::vector<float>> filled_, read_;    ///< until the stream is done with them
    std::vector<std::vector<std::int64_t>> integers_;  ///< by step
    std::unique_ptr<GpuExchange> exchange_;
};

}  // namespace

std::string check_sums(const std::shared_ptr<GpuRuntime>& runtime,
                       Bootstrap& bootstrap,
                       std::span<const std::size_t> counts) {
    CudaMemory numbers;  // outlives the communicator, which works on it
    NcclCommunicator communicator(runtime, bootstrap, selftest_options(sum_limit_s));
    numbers = make_memory(runtime, integers * sizeof(std::int64_t));
    const Caller caller(runtime);
    std::string done;
    for (const TrialKind& kind : kinds) {
        Trial(caller, communicator, kind, counts, numbers).run();
        done += fmt::format("{}{}", done.empty() ? "" : ", ", kind.name);
    }
    std::string phases;
    for (const StartPhase& phase : communicator.start_phases())
        phases += fmt::format(", {} {}", phase.name, duration_text(phase.seconds));
    communicator.close();
    return fmt::format("{}: {} steps of {}{}", runtime->nccl_text(), steps, done, phases);
}

std::string check_selection(Bootstrap& bootstrap, const PlannedGpu& gpu) {
    if (bootstrap.size() == 1) {
        const SelectedGpu mine = try_gpu(gpu, bootstrap, start_limit_s);
        return fmt::format("{} is {} ({})", mine.pci, mine.name, mine.uuid);
    }
    try {
        try_gpu(gpu, bootstrap, start_limit_s);
    } catch (const Error& error) {
        if (kind_of(error) != ErrorKind::gpu_shared) throw;
        return fmt::format("refused: {}", error.what());
    }
    throw Error("E690", fmt::format("{} ranks were given one GPU", bootstrap.size()));
}

std::string survive_a_killed_rank(const std::shared_ptr<GpuRuntime>& runtime,
                                  Bootstrap& bootstrap,
                                  std::span<const std::size_t> counts) {
    CudaMemory numbers;
    NcclCommunicator communicator(runtime, bootstrap, selftest_options(killed_limit_s));
    numbers = make_memory(runtime, integers * sizeof(std::int64_t));
    const Caller caller(runtime);
    Trial trial(caller, communicator, kinds.front(), counts, numbers);
    trial.run();
    gather_all(bootstrap, "", start_limit_s, "the kill");
    if (bootstrap.rank() + 1 == bootstrap.size()) ::raise(SIGKILL);

    const double begin = now_s();
    try {
        trial.exchange_again();
    } catch (const Error& error) {
        const double seconds = now_s() - begin;
        check(!runtime->is_wedged() && seconds < killed_limit_s + abort_limit_s, [&] {
            return Error("E678", "the abort after a killed rank took too long", error.text());
        });
        return fmt::format("gave up after {}: {}", duration_text(seconds), error.text());
    }
    throw Error("E679", "a sum with a killed rank ended as if nothing had happened");
}

}  // namespace lockstep
