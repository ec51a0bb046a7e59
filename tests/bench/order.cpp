// SPDX-License-Identifier: Apache-2.0
// What the invariant order of summation costs beside ordinary summation: one step's gradients of
// V = 8 leaves through the reducer and the exchange, in both orders by turns. Under mpirun; prints
// one JSON object.
#include "lockstep/comm/reducer.hpp"
#include "lockstep/core/clock.hpp"
#include "lockstep/core/json.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iostream>

namespace {

using namespace lockstep;

constexpr int virtual_ranks = 8, rounds = 15, steps_of_round = 3;
constexpr std::array<std::size_t, 4> tensors = {2u << 20, 1u << 20, 512u << 10, 256u << 10};

/// Steps of one order of summation.
class Stepper {
  public:
    Stepper(const Communicator& ranks, Summation summation)
        : ranks_(ranks),
          layout_(tensors, 0),
          plan_(virtual_ranks, ranks.size(), summation),
          exchange_(make_exchange(ranks, layout_, plan_)),
          reducer_(layout_, plan_, ranks.rank(), *exchange_) {}

    /// Seconds of one step, of the slowest rank.
    double run() {
        ranks_.barrier();
        const double begin = now_s();
        for (int i = 0; i < steps_of_round; ++i) step();
        std::array<std::int64_t, 1> ns = {std::llround(1e9 * (now_s() - begin) / steps_of_round)};
        ranks_.all_reduce_max(ns);
        return 1e-9 * static_cast<double>(ns[0]);
    }

  private:
    void step() {
        const LeafRange leaves = leaves_of(ranks_.rank(), ranks_.size(), virtual_ranks);
        reducer_.begin_step();
        for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
            reducer_.begin_leaf();
            for (std::size_t tensor = 0; tensor < tensors.size(); ++tensor) reducer_.add(tensor);
            reducer_.end_leaf();
        }
        reducer_.finish();
        exchange_->publish();
    }

    const Communicator ranks_;
    const FlatLayout layout_;
    const TreePlan plan_;
    const std::unique_ptr<Exchange> exchange_;
    Reducer reducer_;
};

void compare(const Communicator& ranks) {
    Stepper invariant(ranks, Summation::tree), plain(ranks, Summation::plain);
    double invariant_s = invariant.run(), plain_s = plain.run();
    for (int round = 0; round < rounds; ++round) {
        invariant_s = std::min(invariant_s, invariant.run());
        plain_s = std::min(plain_s, plain.run());
    }
    if (!ranks.is_root()) return;
    std::cout << Json({{"virtual_ranks", virtual_ranks},
                       {"ranks", ranks.size()},
                       {"invariant_us", 1e6 * invariant_s},
                       {"plain_us", 1e6 * plain_s}})
              << "\n";
}

}  // namespace

int main() {
    const MpiSession session;
    compare(Communicator::world());
}
