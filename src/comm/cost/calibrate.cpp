// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/cost_model.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/error.hpp"

#include "collectives/messages.hpp"
#include "collectives/private_memory.hpp"
#include "collectives/sum_kernels.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

namespace lockstep {
namespace {

constexpr std::size_t least_bytes = 8, most_bytes = std::size_t{64} << 20;
constexpr int most_regimes = 3, rounds = 5;
constexpr double block_s = 0.003;

std::vector<std::size_t> calibration_sizes() {
    std::vector<std::size_t> sizes;
    for (std::size_t bytes = least_bytes; bytes <= most_bytes; bytes *= 2) sizes.push_back(bytes);
    return sizes;
}

/// Measures one operation on all ranks at once.
class Calibration {
  public:
    explicit Calibration(const Communicator& ranks)
        : ranks_(ranks),
          messages_(ranks),
          shared_memory_(make_all_reduce(ranks, Algorithm::shared_memory)),
          buffer_(memory_.lend(most_bytes)),
          other_(memory_.lend(most_bytes)),
          lent_(shared_memory_->lend(2 * most_bytes)) {}

    /// The best of some blocks, of the slowest rank.
    template <class Operation>
    double seconds_of(Operation&& operation) {
        const double first = block(operation, 2);
        const auto iterations = static_cast<int>(std::clamp(block_s / first, 1.0, 10000.0));
        double best = std::numeric_limits<double>::infinity();
        for (int round = 0; round < rounds; ++round)
            best = std::min(best, block(operation, iterations));
        return best;
    }

    Cost cost_of(const std::function<void(std::size_t bytes)>& operation) {
        std::vector<CostPoint> points;
        for (const std::size_t bytes : calibration_sizes())
            points.push_back({static_cast<double>(bytes), seconds_of([&] { operation(bytes); })});
        return fit_cost(points, most_regimes);
    }

    /// Ranks 0 and 1; there and back.
    void ping_pong(std::size_t bytes) {
        if (ranks_.rank() > 1) return;
        const int peer = 1 - ranks_.rank();
        const Elements ball = elements(buffer_, bytes);
        if (ranks_.is_root()) messages_.send(ball, peer);
        messages_.receive(ball, peer);
        if (!ranks_.is_root()) messages_.send(ball, peer);
    }

    void exchange(std::size_t bytes) {
        const int next = (ranks_.rank() + 1) % ranks_.size();
        const int previous = (ranks_.rank() + ranks_.size() - 1) % ranks_.size();
        messages_.exchange(elements(buffer_, bytes), next, elements(other_, bytes), previous);
        std::swap(buffer_, other_);
    }

    void sum(std::size_t bytes) {
        constexpr std::array merges = {0, 1};
        const std::array<const void*, 2> inputs = {lent_, lent_ + bytes};
        const std::array<void*, 1> outputs = {lent_};
        sum_into(DataType::float32, merges, inputs, outputs, bytes / sizeof(float));
    }

    void barrier() { dynamic_cast<Collectives&>(*shared_memory_).barrier(); }

  private:
    static Elements elements(std::byte* data, std::size_t bytes) {
        return {data, bytes / sizeof(float), DataType::float32};
    }

    /// Seconds of one operation, of the slowest rank.
    template <class Operation>
    double block(Operation&& operation, int iterations) {
        ranks_.barrier();
        const double begin = now_s();
        for (int i = 0; i < iterations; ++i) operation();
        std::array<std::int64_t, 1> ps = {std::llround(1e12 * (now_s() - begin) / iterations)};
        ranks_.all_reduce_max(ps);
        return 1e-12 * static_cast<double>(std::max<std::int64_t>(ps[0], 1));
    }

    const Communicator ranks_;
    Messages messages_;
    PrivateMemory memory_;
    std::unique_ptr<AllReduce> shared_memory_;
    std::byte *buffer_, *other_, *lent_;
};

Cost half_of(Cost cost) {
    for (Cost::Regime& regime : cost.regimes) {
        regime.a_s /= 2;
        regime.b_s_per_byte /= 2;
    }
    return cost;
}

}  // namespace

MachineCost calibrate(const Communicator& ranks) {
    expect(ranks.size() > 1, "two ranks to calibrate with");
    Calibration calibration(ranks);
    MachineCost cost;
    cost.message =
        half_of(calibration.cost_of([&](std::size_t bytes) { calibration.ping_pong(bytes); }));
    cost.exchange = calibration.cost_of([&](std::size_t bytes) { calibration.exchange(bytes); });
    cost.sum = calibration.cost_of([&](std::size_t bytes) { calibration.sum(bytes); });
    cost.barrier_s = calibration.seconds_of([&] { calibration.barrier(); });
    return cost;
}

}  // namespace lockstep
