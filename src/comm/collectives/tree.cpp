// SPDX-License-Identifier: Apache-2.0
#include "collectives/back_ends.hpp"
#include "collectives/message_all_reduce.hpp"

namespace lockstep {
namespace {

/// A binomial tree: in step k, ranks that are odd multiples of 2^k hand their sum to the rank 2^k
/// below and are done; rank 0 ends with everything and the same tree carries it back.
///
///     2 ceil(log2 P) (a + n b) + ceil(log2 P) n g
///
/// Twice the steps of recursive doubling and most ranks idle in most of them: it is here because
/// reduce and broadcast are built so. The sum is the balanced tree over ranks for any P. bfloat16
/// is rounded on each level.
class Tree : public MessageAllReduce {
  public:
    using MessageAllReduce::MessageAllReduce;
    std::string_view name() const override { return name_of(Algorithm::tree); }

  private:
    void reduce(const Elements& all) override {
        int distance = 1;
        for (; distance < size() && rank() % (2 * distance) == 0; distance *= 2) {
            if (rank() + distance >= size()) continue;
            const Elements arriving = scratch(all);
            messages().receive(arriving, rank() + distance);
            add(all, arriving);
        }
        if (rank() != 0) {
            messages().send(all, rank() - distance);
            messages().receive(all, rank() - distance);
        }
        for (distance /= 2; distance > 0; distance /= 2)
            if (rank() + distance < size()) messages().send(all, rank() + distance);
    }
};

}  // namespace

std::unique_ptr<AllReduce> make_tree_all_reduce(const Communicator& ranks) {
    return std::make_unique<Tree>(ranks);
}

}  // namespace lockstep
