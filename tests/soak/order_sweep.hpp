// SPDX-License-Identifier: Apache-2.0
// Goes through whole epochs on paper, rank by rank and step by step: what every sample comes to,
// and how well an order mixes the worst case, samples that are stored sorted by class.
#pragma once

#include "lockstep/data/order.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep::test {

/// What a sweep found; all zero but the counts of what was tried.
struct SweepResult {
    std::uint64_t cases = 0, resumes = 0, samples = 0;
    std::uint64_t missing = 0, duplicate = 0, different = 0;

    SweepResult& operator+=(const SweepResult& other) {
        cases += other.cases;
        resumes += other.resumes;
        samples += other.samples;
        missing += other.missing;
        duplicate += other.duplicate;
        different += other.different;
        return *this;
    }
};

/// One epoch: the sample at each of its positions, worked out window by window.
class EpochOnPaper {
  public:
    EpochOnPaper(std::uint64_t samples,
                 std::uint32_t block_rows,
                 const OrderSpec& spec,
                 std::uint64_t epoch = 1)
        : lanes_(1), sequence_(samples) {
        const EpochOrder order(row_blocks(samples, block_rows), spec, epoch);
        lanes_ = order.lanes();
        for (int lane = 0; lane < lanes_; ++lane)
            for (std::uint64_t at = 0; at < order.lane_samples(lane);) {
                const LaneRange window = order.window_at(lane, at);
                for (const std::uint32_t sample : order.samples_of(window))
                    sequence_[place(lane, at++)] = sample;
            }
    }

    std::uint64_t samples() const { return sequence_.size(); }

    /// The samples of [begin, end), cut into steps of `batch`, as `ranks` ranks see them: those of
    /// rank 0 of the first step, of rank 1, ...
    template <class Visit>
    void visit(std::uint64_t begin, std::uint64_t end, std::uint64_t batch, int ranks, Visit&& seen)
        const {
        for (std::uint64_t from = begin; from < end; from += batch)
            for (int rank = 0; rank < ranks; ++rank)
                for (const LaneRange& part :
                     leaf_slice(from, std::min(from + batch, end), lanes_, rank, rank + 1, ranks))
                    for (std::uint64_t at = part.begin; at < part.end; ++at)
                        seen(sequence_[place(part.lane, at)]);
    }

  private:
    std::uint64_t place(int lane, std::uint64_t at) const {
        return at * static_cast<std::uint64_t>(lanes_) + static_cast<std::uint64_t>(lane);
    }

    int lanes_;
    std::vector<std::uint32_t> sequence_;
};

using SampleSequence = std::vector<std::uint32_t>;

/// What a sweep comes to that should see each sample once and in the order of `reference`.
inline SweepResult counted(const SampleSequence& seen,
                           const SampleSequence& reference,
                           std::uint64_t samples) {
    std::vector<std::uint8_t> times(samples);
    for (const std::uint32_t sample : seen) ++times[sample];
    SweepResult result{.cases = 1, .samples = seen.size(), .different = seen != reference};
    for (const std::uint8_t count : times) {
        result.missing += count == 0;
        result.duplicate += count > 1;
    }
    return result;
}

/// Every number of ranks for one batch size: an undisturbed epoch, and one that is resumed in the
/// middle on the next number of ranks.
inline SweepResult sweep(const EpochOnPaper& epoch,
                         std::uint64_t batch,
                         const std::vector<int>& ranks) {
    const std::uint64_t samples = epoch.samples(), steps = (samples - 1) / batch + 1;
    SampleSequence seen;
    const auto see = [&](std::uint32_t sample) { seen.push_back(sample); };
    epoch.visit(0, samples, batch, 1, see);
    const SampleSequence alone = std::exchange(seen, {});
    SweepResult result = counted(alone, alone, samples);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        epoch.visit(0, samples, batch, ranks[i], see);
        result += counted(std::exchange(seen, {}), alone, samples);
        const std::uint64_t middle = (steps * (i + 1) / (ranks.size() + 1)) * batch;
        epoch.visit(0, middle, batch, ranks[i], see);
        epoch.visit(middle, samples, batch, ranks[(i + 1) % ranks.size()], see);
        result += counted(std::exchange(seen, {}), alone, samples);
        ++result.resumes;
    }
    return result;
}

enum class SweepSize { small, full };

/// All orders, batch sizes and numbers of ranks for one number of samples.
inline SweepResult sweep_samples(std::uint64_t samples, SweepSize size) {
    const bool is_large = samples > 100'000;
    std::vector<std::uint64_t> batches = {is_large ? 128u : 1u, 128, 1000, 4096, 65'537};
    std::vector<int> ranks = {1, 2, 3, 4, 5, 6, 7, 8, 16, 64, 128};
    std::vector<OrderSpec> specs = {{OrderKind::lanes, 7, 64, 4},
                                    {OrderKind::uniform, 7},
                                    {OrderKind::lanes, 7, 5, 3},
                                    {OrderKind::lanes, 7, 128, 1},
                                    {OrderKind::sequential, 7}};
    if (size == SweepSize::small) {
        specs.resize(2);
        batches =
            is_large ? std::vector<std::uint64_t>{4096} : std::vector<std::uint64_t>{100, 4096};
        ranks = is_large ? std::vector<int>{3, 128} : std::vector<int>{1, 2, 3, 7, 8, 64, 128};
    }
    SweepResult result;
    for (const OrderSpec& spec : specs) {
        const EpochOnPaper epoch(samples, 256, spec);
        for (const std::uint64_t batch : batches) result += sweep(epoch, batch, ranks);
    }
    return result;
}

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
