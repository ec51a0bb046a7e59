// SPDX-License-Identifier: Apache-2.0
// Where the leaves that one pass computes add their gradients: slots of the replica, in the order
// of the tree.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/flat_memory.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/comm/reducer.hpp"

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace lockstep {

/// Borrows the slots.
class LeafSums {
  public:
    /// `partials`: so many slots of `memory` hold the sums in the end, from the first on.
    LeafSums(std::vector<LeafPlace> places,
             std::vector<float*> slots,
             int partials,
             FlatMemory& memory)
        : places_(std::move(places)),
          slots_(std::move(slots)),
          partials_(partials),
          memory_(memory) {
        for (const LeafPlace& place : places_)
            merges_after_.push_back(static_cast<int>(place.merges.size()));
    }

    std::size_t leaves() const { return places_.size(); }

    /// Where leaf `leaf` of these puts its own; then merge(leaf, range).
    float* slot(std::size_t leaf) const { return slots_[at(places_[leaf].slot)]; }

    /// Whole lines: what follows a tensor in its last one is zero.
    void merge(std::size_t leaf, FloatRange range) const {
        const std::size_t count = rounded_to_lines(range.size());
        for (const LeafPlace::Merge& merge : places_[leaf].merges)
            memory_.add(
                slots_[at(merge.into)] + range.begin, slots_[at(merge.from)] + range.begin, count);
    }

    /// For who merges by itself, as sum_into() does: the sums go to these.
    std::span<const int> merges_after() const { return merges_after_; }
    std::span<float* const> partials() const { return std::span(slots_).first(at(partials_)); }

  private:
    static std::size_t at(int index) { return static_cast<std::size_t>(index); }

    std::vector<LeafPlace> places_;
    std::vector<float*> slots_;
    std::vector<int> merges_after_;
    int partials_;
    FlatMemory& memory_;
};

}  // namespace lockstep
