// SPDX-License-Identifier: Apache-2.0
// Loads windows into slabs. Tested: data/stream/lane_borders_test.cpp (rows kept for other
// windows), stream_service_test.cpp beside it (masks).
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

/// One I/O thread's windows: those that it has read, but that wait for rows that another thread is
/// still to keep, are completed after the next one was read.
class WindowPool::Loading {
  public:
    explicit Loading(WindowPool& pool)
        : pool_(pool), index_(pool.index_), reader_(pool.files_), plan_(index_) {}

    /// Until stop().
    void run() {
        for (;;) {
            while (!read_.empty() && read_.front()->shared.is_findable()) complete_first();
            if (Slab* const slab = pool_.claim(read_.empty() ? Wait::yes : Wait::no)) {
                read_.push_back(slab);
                guarded(*slab, [&] { read(*slab); });
            } else if (read_.empty()) {
                return;
            } else {
                complete_first();
            }
        }
    }

  private:
    void complete_first() {
        Slab& slab = *read_.front();
        read_.pop_front();
        guarded(slab, [&] {
            if (!slab.error) complete(slab);
        });
        pool_.publish(slab, reader_.take_stats());
    }

    template <class Work>
    static void guarded(Slab& slab, const Work& work) {
        try {
            work();
        } catch (...) {
            slab.error = std::current_exception();
        }
    }

    /// Reads the rows of slab.window but for those that it finds, and settles those that it keeps.
    /// Errors of both: those of BlockReader, unless samples are masked.
    void read(Slab& slab) {
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

    /// After read(): waits for what it finds. Then the slab is whole.
    void complete(Slab& slab) {
        plan_.clear();
        for (const auto& found : slab.shared.finds)
            if (!found->are_whole())
                plan(slab, found->rows());
            else
                found->copy_to(rows_in(slab, found->rows()));
        read_planned(slab);
        slab.shared = {};
        slab.permutation = slab.window.order->permutation_of(slab.window.range);
        number_rows(slab);
        slab.valid.clear();
        if (!slab.bad_rows.empty()) mask_rows(slab);
    }

    void plan(const Slab& slab, const LaneRange& rows) {
        plan_.add(slab.window.order->rows_of(rows), rows_in(slab, rows));
    }

    // Returns the part of the fields' memory that belongs to these lane positions, before they are
    // permuted.
    std::span<const std::span<std::byte>> rows_in(const Slab& slab, const LaneRange& rows) {
        places_.clear();
        for (std::size_t f = 0; f < slab.fields.size(); ++f) {
            const std::size_t bytes = index_.fields()[f].bytes_per_sample();
            places_.push_back(slab.fields[f].subspan((rows.begin - slab.window.range.begin) * bytes,
                                                     rows.size() * bytes));
        }
        return places_;
    }

    // Returns true if it was read to the end.
    bool read_planned(Slab& slab) {
        OnBadBlock on_bad;
        if (pool_.on_bad_data_ == BadData::mask)
            on_bad = [&](const BlockPiece& piece, const Error& error) {
                pool_.bad_blocks_.add(piece, error);
                const StoredBlock& block = index_.stored_blocks(piece.field)[piece.block];
                slab.bad_rows.push_back({block.first_row, block.rows});
            };
        plan_.arrange();
        for (const ReadRequest& request : plan_.requests()) {
            if (pool_.is_stopped_) return false;
            reader_.read(plan_, request, on_bad);
            if (pool_.page_cache_ == PageCache::drop)
                pool_.dropper_.consumed(slab.window.epoch, plan_.pieces_of(request));
        }
        return true;
    }

    void number_rows(Slab& slab) {
        samples_.clear();
        for (const RowRun& run : slab.window.order->rows_of(slab.window.range))
            for (std::uint64_t i = 0; i < run.rows; ++i) samples_.push_back(run.first + i);
        slab.samples.resize(samples_.size());
        std::ranges::transform(slab.permutation, slab.samples.begin(), [&](std::uint32_t row) {
            return samples_[row];
        });
    }

    // A sample is masked in all fields if any of its fields could not be read.
    void mask_rows(Slab& slab) {
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

    WindowPool& pool_;
    const DatasetIndex& index_;
    BlockReader reader_;
    RequestPlan plan_;
    std::deque<Slab*> read_;
    std::vector<std::span<std::byte>> places_;
    std::vector<std::uint64_t> samples_;  // by row
    std::vector<std::uint8_t> valid_;     // by row
};

void WindowPool::load_windows() {
    Loading(*this).run();
}

}  // namespace lockstep
