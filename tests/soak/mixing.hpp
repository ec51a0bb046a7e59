// SPDX-License-Identifier: Apache-2.0
// How well an order mixes the worst case: samples that are stored sorted by class.
#pragma once

#include "order_sweep.hpp"

#include <cstdint>
#include <vector>

namespace lockstep::test {

/// Samples in classes of equal size, one class after the other.
struct SortedSamples {
    std::uint64_t samples = 60'000, classes = 10;
    std::uint32_t block_rows = 256;
    std::uint64_t batch = 256;
};

/// Chi-square of the classes in whole batches over its degrees of freedom, the mean over batches
/// and as many epochs: 1 where samples are drawn at random, more where batches differ from the
/// whole.
inline double mean_chi_square(const SortedSamples& sorted, OrderSpec spec, std::uint64_t epochs) {
    const double expected = static_cast<double>(sorted.batch) / static_cast<double>(sorted.classes);
    double sum = 0, batches = 0;
    for (std::uint64_t epoch = 0; epoch < epochs; ++epoch) {
        spec.seed = epoch;
        const EpochOnPaper paper(sorted.samples, sorted.block_rows, spec, epoch);
        const std::uint64_t whole = sorted.samples / sorted.batch * sorted.batch;
        std::vector<double> counts(sorted.classes, 0);
        std::uint64_t seen = 0;
        paper.visit(0, whole, sorted.batch, 1, [&](std::uint32_t sample) {
            ++counts[sample * sorted.classes / sorted.samples];
            if (++seen % sorted.batch != 0) return;
            for (double& count : counts) {
                sum += (count - expected) * (count - expected) / expected;
                count = 0;
            }
            ++batches;
        });
    }
    return sum / batches / static_cast<double>(sorted.classes - 1);
}

}  // namespace lockstep::test
