// SPDX-License-Identifier: Apache-2.0
// The order of additions as a tree of numbered pieces, so that one can ask: which of these that I
// hold may I add now?
//
//     order 0 1 0 2 over inputs a b c d            pieces held     may be added
//           6                                      a b c           a+b = 4; c stays, d is elsewhere
//         /   \        inputs 0 to 3               b c             nothing
//        4     5       sums 4 to 6, in the order   4 d c           c+d = 5, then 4+5 = 6
//       a b   c d      in which they are made
//
// combine() looks for the largest subtrees that are covered by the pieces held, and writes how each
// is added as an order for sum_into().
//
// What must never happen: a sum that is no subtree, such as b+c. It would be right but for its
// bits.
//
// Tested: comm/hierarchical/rail_plan_test.cpp (SumTree and, through it, RailPlan).

#include "hierarchical/sum_tree.hpp"

#include "lockstep/core/error.hpp"

namespace lockstep {

SumTree::SumTree(std::span<const int> merges_after) : sums_(merges_after.size()) {
    std::vector<int> stack;
    for (std::size_t k = 0; k < merges_after.size(); ++k) {
        stack.push_back(static_cast<int>(k));
        for (int merges = merges_after[k]; merges > 0; --merges) {
            expect(stack.size() >= 2, "two sums merge");
            sums_.push_back({stack[stack.size() - 2], stack.back()});
            stack.pop_back();
            stack.back() = root();
        }
    }
    expect(stack.size() == 1, "all inputs merge into one sum");
}

/// One search for the largest subtrees that a list of pieces covers.
class SumTree::Walk {
  public:
    Walk(const std::vector<Sum>& sums, std::span<const int> pieces)
        : sums_(sums), position_(sums.size(), none), covered_(sums.size()) {
        for (std::size_t i = 0; i < pieces.size(); ++i) position(pieces[i]) = i;
        for (std::size_t sum = 0; sum < sums.size(); ++sum) {
            const auto [left, right] = sums[sum];
            covered_[sum] =
                position_[sum] != none || (left >= 0 && covered_[static_cast<std::size_t>(left)] &&
                                           covered_[static_cast<std::size_t>(right)]);
        }
    }

    std::vector<Combination> search(int root) {
        visit(root);
        return std::move(found_);
    }

  private:
    static constexpr auto none = static_cast<std::size_t>(-1);

    std::size_t& position(int sum) { return position_[static_cast<std::size_t>(sum)]; }
    Sum parts(int sum) const { return sums_[static_cast<std::size_t>(sum)]; }

    void visit(int sum) {
        if (covered_[static_cast<std::size_t>(sum)]) {
            found_.push_back({sum, {}, {}});
            add_up(sum, found_.back());
        } else if (parts(sum).left >= 0) {
            visit(parts(sum).left);
            visit(parts(sum).right);
        }
    }

    void add_up(int sum, Combination& combination) {
        if (position(sum) != none) {
            combination.from.push_back(position(sum));
            combination.merges_after.push_back(0);
            return;
        }
        add_up(parts(sum).left, combination);
        add_up(parts(sum).right, combination);
        ++combination.merges_after.back();
    }

    const std::vector<Sum>& sums_;
    std::vector<std::size_t> position_;  ///< in the list of pieces, by subtree
    std::vector<bool> covered_;
    std::vector<Combination> found_;
};

std::vector<Combination> SumTree::combine(std::span<const int> pieces) const {
    return Walk(sums_, pieces).search(root());
}

std::vector<int> wholes_of(std::span<const Combination> combinations) {
    std::vector<int> wholes;
    for (const Combination& combination : combinations) wholes.push_back(combination.whole);
    return wholes;
}

}  // namespace lockstep
