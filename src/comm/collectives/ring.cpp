// SPDX-License-Identifier: Apache-2.0
#include "collectives/back_ends.hpp"
#include "collectives/message_all_reduce.hpp"

namespace lockstep {
namespace {

/// P chunks travel around a ring, each rank to the next. In the first P-1 steps a chunk gathers one
/// rank's part at each stop (reduce-scatter): rank r ends with chunk r+1 whole. In the next P-1
/// steps the whole chunks go around (all-gather).
///
///     2(P-1) a + 2(P-1)/P n b + (P-1)/P n g
///
/// No algorithm sends fewer bytes, but the steps grow with P. (Patarasuk and Yuan, Bandwidth
/// optimal all-reduce algorithms for clusters of workstations, 2009.) Chunk c is summed in the
/// order c, c+1, ...: the order depends on where in the buffer an element lies. bfloat16 is rounded
/// P-1 times.
class Ring : public MessageAllReduce {
  public:
    using MessageAllReduce::MessageAllReduce;
    std::string_view name() const override { return name_of(Algorithm::ring); }

  private:
    void reduce(const Elements& all) override {
        const int next = (rank() + 1) % size(), previous = (rank() + size() - 1) % size();
        for (int step = 0; step < size() - 1; ++step) {
            const Elements mine = all.chunk(rank() - step - 1, size());
            const Elements arriving = scratch(mine);
            messages().exchange(all.chunk(rank() - step, size()), next, arriving, previous);
            add(mine, arriving);
        }
        for (int step = 0; step < size() - 1; ++step)
            messages().exchange(all.chunk(rank() - step + 1, size()),
                                next,
                                all.chunk(rank() - step, size()),
                                previous);
    }
};

}  // namespace

std::unique_ptr<AllReduce> make_ring_all_reduce(const Communicator& ranks) {
    return std::make_unique<Ring>(ranks);
}

}  // namespace lockstep
