// SPDX-License-Identifier: Apache-2.0
#include "lockstep/plan/run_length.hpp"

#include <algorithm>
#include <bit>

namespace lockstep {
namespace {

constexpr int most_virtual_ranks = 64;

// With 4 the cnn's steps take 1.13 times as long as with one leaf, with 8 1.07 times
// (docs/benchmarks.md, Room to grow).
constexpr std::int64_t least_rows = 8;
// Goyal et al., https://arxiv.org/abs/1706.02677, take batch statistics over so many.
constexpr std::int64_t least_rows_across = 32;

// Multiplications of a leaf for each weight: with fewer, reading weights and adding gradients leaf
// by leaf takes as long as computing them (docs/numerics.md, V by default). Some room to grow is
// worth that.
constexpr std::uint64_t least_products = 24;
constexpr int room_at_any_price = 4;

// A rank that has all leaves holds so many gradients at once.
constexpr std::uint64_t most_gradient_bytes = 1U << 30;

bool suits(const TrainSettings& given,
           std::int64_t samples,
           const ModelTraits& model,
           int virtual_ranks) {
    TrainSettings settings = given;
    settings.virtual_ranks = virtual_ranks;
    const std::int64_t least = model.looks_across_samples ? least_rows_across : least_rows;
    const std::int64_t rows = std::min(settings.batch, samples) / virtual_ranks;
    const bool has_work = virtual_ranks <= room_at_any_price || model.products == 0 ||
                          static_cast<std::uint64_t>(rows) * model.products >=
                              least_products * static_cast<std::uint64_t>(model.parameters);
    const std::uint64_t gradients = std::bit_width(static_cast<unsigned>(virtual_ranks));
    const std::uint64_t bytes = static_cast<std::uint64_t>(model.parameters) * sizeof(float);
    // The last step of an epoch counts, for a run may become longer.
    return settings.batch % virtual_ranks == 0 && rows >= least && has_work &&
           gradients * bytes <= most_gradient_bytes &&
           !(model.looks_across_samples && single_rows(settings, samples, {}));
}

}  // namespace

int default_virtual_ranks(const TrainSettings& settings,
                          std::int64_t samples,
                          const ModelTraits& model,
                          int ranks) {
    const int least = static_cast<int>(std::bit_ceil(static_cast<unsigned>(ranks)));
    if (settings.precision != Precision::fp32 || settings.micro_batches > 1 ||
        settings.plain_summation)
        return least;
    for (int most = most_virtual_ranks; most > least; most /= 2)
        if (suits(settings, samples, model, most)) return most;
    return least;
}

}  // namespace lockstep
