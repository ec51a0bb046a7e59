// SPDX-License-Identifier: Apache-2.0
/// @file
/// How long an all-reduce should take: the literature's formulas with constants measured here.
#pragma once

#include "lockstep/comm/collectives.hpp"
#include "lockstep/comm/measure.hpp"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace lockstep {

/// Seconds for n bytes: a + n b, with other constants from certain sizes on (eager and rendezvous
/// messages, caches and memory).
struct Cost {
    /// One line over a range of sizes.
    struct Regime {
        double from_bytes = 0;    ///< smallest size that it was fitted to
        double to_bytes = 0;      ///< largest
        double a_s = 0;           ///< for each operation
        double b_s_per_byte = 0;  ///< for each byte

        /// This line's, also outside its range.
        double seconds(double bytes) const { return a_s + bytes * b_s_per_byte; }
    };
    std::vector<Regime> regimes;  ///< ascending; between two of them the cost passes over gradually

    /// Of an operation on `bytes`; see `regimes`.
    double seconds(double bytes) const;
};

/// One measured point.
struct CostPoint {
    double bytes = 0;    ///< of one operation
    double seconds = 0;  ///< that it took
};

/// Least squares of the relative error, one line for each of up to `regimes` ranges of sizes whose
/// borders are chosen to fit best; no negative constants. At least 3 points a line.
Cost fit_cost(std::span<const CostPoint> points, int regimes);

/// What a machine's operations cost. Ranks of one node, all of them at once.
struct MachineCost {
    Cost message;  ///< one message, one way: half of a ping-pong between ranks 0 and 1
    Cost
        exchange;  ///< each rank sends what it received last, while it receives from the other side
    Cost sum;      ///< each rank adds n bytes to n others in place, in a window: moves 3 n
    double barrier_s = 0;  ///< seconds of one barrier
};

/// Collective. Runs for about a second on each kind of operation. Two ranks at least, of one node.
MachineCost calibrate(const Communicator& ranks);

/// Seconds of the algorithm's formula (docs/collectives.md), none for those that have no formula
/// here: Open MPI picks one of many by size and ranks. `ranks` of one node.
std::optional<double> predict_s(Algorithm algorithm,
                                const MachineCost& cost,
                                double bytes,
                                int ranks);

/// A measured all-reduce, of which nothing went into the constants, beside what the model says.
struct HeldOut {
    Measurement measured;    ///< the all-reduce
    double predicted_s = 0;  ///< seconds by the model

    /// Relative: 0.1 where the model says 10 % too much.
    double error() const { return predicted_s / measured.best_s - 1; }
};

/// All float32 rows of `measured` that have a formula. Shared memory counts only where its buffers
/// were lent: from other memory it also copies.
std::vector<HeldOut> hold_out(const MachineCost& cost,
                              const Measurements& measured,
                              BufferPlace place,
                              int ranks);

/// The median of |error|; 0 for none.
double median_error(std::span<const HeldOut> points);

}  // namespace lockstep
