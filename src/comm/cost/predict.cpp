// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/cost_model.hpp"

#include "collectives/small_messages.hpp"

#include <bit>

namespace lockstep {
namespace {

int log2_floor(int ranks) {
    return std::bit_width(static_cast<unsigned>(ranks)) - 1;
}
int log2_ceil(int ranks) {
    return std::bit_width(static_cast<unsigned>(ranks) - 1);
}

/// 2(P-1) a + 2(P-1)/P n b + (P-1)/P n g: Patarasuk and Yuan 2009.
double ring_s(const MachineCost& cost, double n, int ranks) {
    const double chunk = n / ranks;
    return (ranks - 1) * (2 * cost.exchange.seconds(chunk) + cost.sum.seconds(chunk));
}

/// log2 P (a + n b + n g), and a fold of two messages and one sum where P is no power of two:
/// Thakur, Rabenseifner and Gropp 2005, section 4.2.
double recursive_doubling_s(const MachineCost& cost, double n, int ranks) {
    const double steps = log2_floor(ranks) * (cost.exchange.seconds(n) + cost.sum.seconds(n));
    const bool folds = log2_floor(ranks) != log2_ceil(ranks);
    return steps + (folds ? 2 * cost.message.seconds(n) + cost.sum.seconds(n) : 0);
}

/// 2 ceil(log2 P) (a + n b) + ceil(log2 P) n g: binomial reduce and broadcast, as above.
double tree_s(const MachineCost& cost, double n, int ranks) {
    return log2_ceil(ranks) * (2 * cost.message.seconds(n) + cost.sum.seconds(n));
}

/// 2(P-1) a + 2(P-1)/P n b + (P-1)/P n g, without contention at the servers: from Li et al. 2014
/// with as many servers as workers.
double parameter_server_s(const MachineCost& cost, double n, int ranks) {
    return ring_s(cost, n, ranks);
}

/// 2 barriers + 2 P n / (bytes a second of the node): each rank reads P pieces of n/P and writes
/// P. A sum of m bytes in place moves 3 m, so 2 n moved cost as much as the sum of 2/3 n. Short
/// messages: one barrier, then every rank sums everything itself.
double shared_memory_s(const MachineCost& cost, double n, int ranks) {
    if (n <= static_cast<double>(SmallMessages::most_bytes))
        return cost.barrier_s + (ranks - 1) * cost.sum.seconds(n);
    return 2 * cost.barrier_s + cost.sum.seconds(2 * n / 3);
}

}  // namespace

std::optional<double> predict_s(Algorithm algorithm,
                                const MachineCost& cost,
                                double bytes,
                                int ranks) {
    if (ranks == 1) return 0;
    switch (algorithm) {
        case Algorithm::shared_memory:
            return shared_memory_s(cost, bytes, ranks);
        case Algorithm::ring:
            return ring_s(cost, bytes, ranks);
        case Algorithm::recursive_doubling:
            return recursive_doubling_s(cost, bytes, ranks);
        case Algorithm::tree:
            return tree_s(cost, bytes, ranks);
        case Algorithm::parameter_server:
            return parameter_server_s(cost, bytes, ranks);
        default:
            return {};
    }
}

}  // namespace lockstep
