// SPDX-License-Identifier: Apache-2.0
#include "window_loader.hpp"

#include "window_pool.hpp"

#include <algorithm>

namespace lockstep {

void WindowLoader::load(Slab& slab) {
    runs_ = slab.window.order->rows_of(slab.window.range);
    bad_rows_.clear();
    read_all(slab);
    slab.permutation = slab.window.order->permutation_of(slab.window.range);
    number_rows(slab);
    slab.valid.clear();
    if (!bad_rows_.empty()) mask_rows(slab);
}

void WindowLoader::read_all(const Slab& slab) {
    OnBadBlock on_bad;
    if (bad_blocks_)
        on_bad = [&](const BlockPiece& piece, const Error& error) {
            bad_blocks_->add(piece, error);
            const StoredBlock& block = index_.stored_blocks(piece.field)[piece.block];
            bad_rows_.push_back({block.first_row, block.rows});
        };
    plan_.clear();
    plan_.add(runs_, slab.fields);
    plan_.arrange();
    for (const ReadRequest& request : plan_.requests()) {
        if (is_stopped_) return;
        reader_.read(plan_, request, on_bad);
        if (dropper_) dropper_->consumed(slab.window.epoch, plan_.pieces_of(request));
    }
}

void WindowLoader::number_rows(Slab& slab) {
    samples_.clear();
    for (const RowRun& run : runs_)
        for (std::uint64_t i = 0; i < run.rows; ++i) samples_.push_back(run.first + i);
    slab.samples.resize(samples_.size());
    std::ranges::transform(
        slab.permutation, slab.samples.begin(), [&](std::uint32_t row) { return samples_[row]; });
}

// A sample is masked in all fields if any of its fields could not be read.
void WindowLoader::mask_rows(Slab& slab) {
    valid_.assign(samples_.size(), 1);
    for (std::size_t row = 0; row < samples_.size(); ++row)
        for (const RowRun& bad : bad_rows_)
            if (samples_[row] - bad.first < bad.rows) valid_[row] = 0;
    for (std::size_t f = 0; f < slab.fields.size(); ++f) {
        const std::size_t bytes = index_.fields()[f].bytes_per_sample();
        for (std::size_t row = 0; row < valid_.size(); ++row)
            if (!valid_[row])
                std::ranges::fill(slab.fields[f].subspan(row * bytes, bytes), std::byte{0});
    }
    slab.valid.resize(valid_.size());
    std::ranges::transform(
        slab.permutation, slab.valid.begin(), [&](std::uint32_t row) { return valid_[row]; });
}

}  // namespace lockstep
