// SPDX-License-Identifier: Apache-2.0
#include "collectives/back_ends.hpp"
#include "collectives/message_all_reduce.hpp"

#include <bit>

namespace lockstep {
namespace {

/// In step k every rank swaps its whole buffer with the one 2^k away and adds: after log2 P steps
/// all have everything. Both partners add the same two values, and a + b = b + a: the same bits.
///
///     log2 P (a + n b + n g)
///
/// The fewest steps of all, but every step sends everything: best for small buffers. Where P is no
/// power of two, the first ranks fold in pairs, which costs two more messages. (Thakur,
/// Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005.) The
/// sum is the balanced tree over ranks where P is a power of two. bfloat16 is rounded in each step.
class RecursiveDoubling : public MessageAllReduce {
  public:
    explicit RecursiveDoubling(const Communicator& ranks)
        : MessageAllReduce(ranks),
          players_(static_cast<int>(std::bit_floor(static_cast<unsigned>(size())))),
          folded_(size() - players_) {}
    std::string_view name() const override { return name_of(Algorithm::recursive_doubling); }

  private:
    bool is_in_pair() const { return rank() < 2 * folded_; }
    bool sits_out() const { return is_in_pair() && rank() % 2 == 1; }

    /// Players are numbered without those who sit out.
    int player() const { return is_in_pair() ? rank() / 2 : rank() - folded_; }
    int rank_of_player(int player) const {
        return player < folded_ ? 2 * player : player + folded_;
    }

    void reduce(const Elements& all) override {
        if (sits_out()) {
            messages().send(all, rank() - 1);
            messages().receive(all, rank() - 1);
            return;
        }
        const Elements arriving = scratch(all);
        if (is_in_pair()) {
            messages().receive(arriving, rank() + 1);
            add(all, arriving);
        }
        for (int distance = 1; distance < players_; distance *= 2) {
            const int partner = rank_of_player(player() ^ distance);
            messages().exchange(all, partner, arriving, partner);
            add(all, arriving);
        }
        if (is_in_pair()) messages().send(all, rank() + 1);
    }

    const int players_;  ///< the largest power of two within P
    const int folded_;   ///< pairs that play as one
};

}  // namespace

std::unique_ptr<AllReduce> make_recursive_doubling_all_reduce(const Communicator& ranks) {
    return std::make_unique<RecursiveDoubling>(ranks);
}

}  // namespace lockstep
