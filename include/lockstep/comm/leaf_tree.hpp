// SPDX-License-Identifier: Apache-2.0
/// @file
/// The fixed order of summation: a balanced binary tree over V leaves, on any number of ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A half-open range of leaves (virtual ranks).
struct LeafRange {
    int begin = 0;                            ///< the first leaf
    int end = 0;                              ///< one past the last
    int size() const { return end - begin; }  ///< number of leaves
    bool operator==(const LeafRange&) const = default;
};

/// Returns the leaves [V r / P, V (r+1) / P) that rank r of P computes.
LeafRange leaves_of(int rank, int ranks, int virtual_ranks);

/// A complete subtree summed inside one rank: leaves [first, first + 2^level).
struct Partial {
    int first = 0;                                 ///< first leaf
    int level = 0;                                 ///< 0: a single leaf
    int rank = 0;                                  ///< rank whose memory holds it
    int slot = 0;                                  ///< gradient slot that holds it
    int leaf_count() const { return 1 << level; }  ///< 2^level
    bool operator==(const Partial&) const = default;
};

/// Makes the merges of a rank after its leaf at position `leaf` is in slot `height`. As in a binary
/// counter, slot k += slot k+1 while both are siblings of one level. Returns their number.
/// `merge(into, from)` is called once for each, innermost first.
template <class Merge>
int merge_siblings(std::vector<Partial>& stack, Merge&& merge) {
    int merges = 0;
    for (; stack.size() >= 2; ++merges) {
        Partial& left = stack[stack.size() - 2];
        const Partial& right = stack.back();
        const bool siblings = left.level == right.level && left.first % (2 << left.level) == 0;
        if (!siblings) break;
        merge(left.slot, right.slot);
        ++left.level;
        stack.pop_back();
    }
    return merges;
}

/// The way in which leaf gradients are combined. `plain` sums a rank's leaves one after another and
/// then the ranks in order, as ordinary data-parallel training does. It is the negative control of
/// `verify`.
enum class Summation { tree, plain };

/// The partials of all ranks, and the largest number of gradient slots that a rank needs while it
/// computes. With Summation::plain a rank has one partial, in slot 0, whose level has no meaning.
class TreePlan {
  public:
    /// Makes the plan. Errors: E640 unless V is a power of two and 1 <= P <= V.
    TreePlan(int virtual_ranks, int ranks, Summation summation = Summation::tree);

    int virtual_ranks() const { return virtual_ranks_; }  ///< V
    int ranks() const { return ranks_; }                  ///< P
    Summation summation() const { return summation_; }    ///< tree, or the negative control
    std::span<const Partial> partials() const { return partials_; }  ///< all ranks, left to right

    /// Returns the partials of `rank` from left to right, as its slots hold them.
    std::span<const Partial> partials_of_rank(int rank) const;
    int slots() const { return slots_; }  ///< the largest number that any rank needs at once

    /// Returns how many times the two topmost entries of a stack merge after partial k was pushed.
    std::span<const int> merges_after() const { return merges_after_; }

    /// Makes the merges after a leaf or partial was pushed to `stack`: merge_siblings for the tree;
    /// for plain summation everything merges at once. Returns their number.
    template <class Merge>
    int merge(std::vector<Partial>& stack, Merge&& merge) const {
        if (summation_ == Summation::tree) return merge_siblings(stack, merge);
        if (stack.size() == 1) return 0;
        merge(stack[0].slot, stack[1].slot);
        stack.pop_back();
        return 1;
    }

  private:
    void add_rank(int rank);

    int virtual_ranks_, ranks_, slots_ = 0;
    Summation summation_;
    std::vector<Partial> partials_;
    std::vector<std::size_t> first_of_rank_;
    std::vector<int> merges_after_;
};

/// Computes into[i] += from[i]. Pointers are 64-byte aligned, `count` is a multiple of line_floats.
void add_into(float* into, const float* from, std::size_t count);

}  // namespace lockstep
