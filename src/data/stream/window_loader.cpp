// SPDX-License-Identifier: Apache-2.0
#include "window_pool.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Settles kept rows however loading ends, so that no thread waits for them for ever.
class Settling {
  public:
    explicit Settling(const SharedRows& shared) : shared_(shared) {}
    ~Settling() { settle(false); }
    Settling& operator=(Settling&&) = delete;

    void settle(bool are_whole) const {
        for (const auto& rows : shared_.keeps) rows->settle(are_whole);
    }

  private:
    const SharedRows& shared_;
};

}  // namespace

void WindowLoader::read(Slab& slab) {
    const Settling settling(slab.shared);
    slab.bad_rows.clear();
    plan_.clear();
    plan(slab, unkept_rows(slab.window.range, slab.shared));
    for (const auto& kept : slab.shared.keeps)
        if (kept->take_room(index_))
            plan_.add(slab.window.order->rows_of(kept->rows()), kept->fields());
        else
            kept->settle(false);
    settling.settle(read_planned(slab) && slab.bad_rows.empty());
}

void WindowLoader::complete(Slab& slab) {
    plan_.clear();
    for (const auto& found : slab.shared.finds)
        if (!found->are_whole())
            plan(slab, found->rows());
        else
            found->copy_to(rows_in(slab, found->rows()));
    read_planned(slab);
    slab.shared = {};
    slab.permutation = slab.window.order->permutation_of(slab.window.range);
    runs_ = slab.window.order->rows_of(slab.window.range);
    number_rows(slab);
    slab.valid.clear();
    if (!slab.bad_rows.empty()) mask_rows(slab);
}

void WindowLoader::plan(const Slab& slab, const LaneRange& rows) {
    plan_.add(slab.window.order->rows_of(rows), rows_in(slab, rows));
}

// Returns the part of the fields' memory that belongs to these lane positions, before they are
// permuted.
std::span<const std::span<std::byte>> WindowLoader::rows_in(const Slab& slab,
                                                            const LaneRange& rows) {
    places_.clear();
    for (std::size_t f = 0; f < slab.fields.size(); ++f) {
        const std::size_t bytes = index_.fields()[f].bytes_per_sample();
        places_.push_back(slab.fields[f].subspan((rows.begin - slab.window.range.begin) * bytes,
                                                 rows.size() * bytes));
    }
    return places_;
}

// Returns true if it was read to the end.
bool WindowLoader::read_planned(Slab& slab) {
    OnBadBlock on_bad;
    if (bad_blocks_)
        on_bad = [&](const BlockPiece& piece, const Error& error) {
            bad_blocks_->add(piece, error);
            const StoredBlock& block = index_.stored_blocks(piece.field)[piece.block];
            slab.bad_rows.push_back({block.first_row, block.rows});
        };
    plan_.arrange();
    for (const ReadRequest& request : plan_.requests()) {
        if (is_stopped_) return false;
        reader_.read(plan_, request, on_bad);
        if (dropper_) dropper_->consumed(slab.window.epoch, plan_.pieces_of(request));
    }
    return true;
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
        for (const RowRun& bad : slab.bad_rows)
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
