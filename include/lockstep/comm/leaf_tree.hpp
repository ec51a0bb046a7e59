// SPDX-License-Identifier: Apache-2.0
// The one order of summation: a balanced binary tree over V leaves, whoever computes them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep {

/// A half-open range of leaves (virtual ranks).
struct LeafRange {
    int begin = 0, end = 0;
    int size() const { return end - begin; }
    bool operator==(const LeafRange&) const = default;
};

/// The leaves [V r / P, V (r+1) / P) that rank r of P computes.
LeafRange leaves_of(int rank, int ranks, int virtual_ranks);

/// A complete subtree summed inside one rank: leaves [first, first + 2^level).
struct Partial {
    int first = 0, level = 0;
    int rank = 0, slot = 0;  ///< in whose memory, and in which of its gradient slots
    int leaf_count() const { return 1 << level; }
    bool operator==(const Partial&) const = default;
};

/// The maximal complete subtrees inside `range`, left to right; partial i lies in slot i.
std::vector<Partial> partials_of(LeafRange range, int rank);

/// The merges a rank does after its leaf at position `leaf` is in slot `height`: as a binary
/// counter, slot k += slot k+1 while both are siblings of one level. Returns the new height.
/// `merge(into, from)` is called once for each, innermost first.
template <class Merge>
int merge_siblings(std::vector<Partial>& stack, Merge&& merge) {
    while (stack.size() >= 2) {
        Partial& left = stack[stack.size() - 2];
        const Partial& right = stack.back();
        const bool siblings = left.level == right.level && left.first % (2 << left.level) == 0;
        if (!siblings) break;
        merge(left.slot, right.slot);
        ++left.level;
        stack.pop_back();
    }
    return static_cast<int>(stack.size());
}

/// Every rank's partials, and how many gradient slots a rank needs at most while it computes.
class TreePlan {
  public:
    /// Errors: E640 unless V is a power of two and 1 <= P <= V.
    TreePlan(int virtual_ranks, int ranks);

    int virtual_ranks() const { return virtual_ranks_; }
    int ranks() const { return ranks_; }
    std::span<const Partial> partials() const { return partials_; }  ///< all ranks, left to right
    std::span<const Partial> partials_of_rank(int rank) const;
    int slots() const { return slots_; }  ///< the largest number any rank needs at once

  private:
    int virtual_ranks_, ranks_, slots_ = 0;
    std::vector<Partial> partials_;
    std::vector<std::size_t> first_of_rank_;
};

/// out[i] = T(inputs[..][i]) for i in [0, count): inputs[k] is the sum of partial k of `plan`.
/// The additions and their order are those of the full tree over V leaves, in fp32.
void tree_sum(const TreePlan& plan,
              std::span<const float* const> inputs,
              float* out,
              std::size_t count);

}  // namespace lockstep
