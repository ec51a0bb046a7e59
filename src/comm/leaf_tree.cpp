// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/leaf_tree.hpp"

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/core/error.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>

#include <fmt/format.h>

namespace lockstep {

LeafRange leaves_of(int rank, int ranks, int virtual_ranks) {
    const auto boundary = [&](std::int64_t r) {
        return static_cast<int>(virtual_ranks * r / ranks);
    };
    return {boundary(rank), boundary(rank + 1)};
}

std::vector<Partial> partials_of(LeafRange range, int rank) {
    std::vector<Partial> partials;
    for (int first = range.begin; first < range.end;) {
        int level = 0;
        while (first % (2 << level) == 0 && first + (2 << level) <= range.end) ++level;
        partials.push_back({first, level, rank, static_cast<int>(partials.size())});
        first += 1 << level;
    }
    return partials;
}

TreePlan::TreePlan(int virtual_ranks, int ranks, Summation summation)
    : virtual_ranks_(virtual_ranks), ranks_(ranks), summation_(summation) {
    const bool possible = virtual_ranks > 0 && ranks > 0 && ranks <= virtual_ranks &&
                          std::has_single_bit(static_cast<unsigned>(virtual_ranks));
    check(possible, [&] {
        return Error("E640",
                     fmt::format("{} virtual ranks cannot run on {} ranks", virtual_ranks, ranks),
                     "virtual ranks are a power of two and at least as many as ranks",
                     fmt::format("use 1 to {} ranks, or create the run with more virtual ranks",
                                 std::max(virtual_ranks, 1)));
    });
    for (int rank = 0; rank < ranks; ++rank) add_rank(rank);
    first_of_rank_.push_back(partials_.size());

    std::vector<Partial> stack;
    for (const Partial& partial : partials_) {
        stack.push_back(partial);
        merges_after_.push_back(merge(stack, [](int, int) {}));
    }
    expect(stack.size() == 1, "all partials merge into one");
}

void TreePlan::add_rank(int rank) {
    const LeafRange leaves = leaves_of(rank, ranks_, virtual_ranks_);
    std::vector<Partial> stack;
    for (int leaf = leaves.begin; leaf < leaves.end; ++leaf) {
        stack.push_back({leaf, 0, rank, static_cast<int>(stack.size())});
        slots_ = std::max(slots_, static_cast<int>(stack.size()));
        merge(stack, [](int, int) {});
    }
    first_of_rank_.push_back(partials_.size());
    partials_.insert(partials_.end(), stack.begin(), stack.end());
}

std::span<const Partial> TreePlan::partials_of_rank(int rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return std::span(partials_).subspan(first_of_rank_[r],
                                        first_of_rank_[r + 1] - first_of_rank_[r]);
}

namespace {

/// One cache line of floats: what every loop below works on, so that no sum depends on where a
/// stripe begins or on the width of the processor's registers.
typedef float Line __attribute__((vector_size(sizeof(float) * line_floats), may_alias));

const Line& line_at(const float* floats, std::size_t i) {
    return *reinterpret_cast<const Line*>(floats + i);
}
Line& line_at(float* floats, std::size_t i) {
    return *reinterpret_cast<Line*>(floats + i);
}

using Inputs = std::span<const float* const>;

void sum_two(Inputs in, float* out, std::size_t count) {
    const float *a = in[0], *b = in[1];
    for (std::size_t i = 0; i < count; i += line_floats)
        line_at(out, i) = line_at(a, i) + line_at(b, i);
}

void sum_four(Inputs in, float* out, std::size_t count) {
    const float *a = in[0], *b = in[1], *c = in[2], *d = in[3];
    for (std::size_t i = 0; i < count; i += line_floats)
        line_at(out, i) = (line_at(a, i) + line_at(b, i)) + (line_at(c, i) + line_at(d, i));
}

/// Any order that `merges_after` describes; the height never exceeds the levels of an int's tree.
void sum_by_stack(std::span<const int> merges_after, Inputs in, float* out, std::size_t count) {
    Line stack[33] = {};
    for (std::size_t i = 0; i < count; i += line_floats) {
        std::size_t height = 0;
        for (std::size_t k = 0; k < in.size(); ++k) {
            stack[height++] = line_at(in[k], i);
            for (int merges = merges_after[k]; merges > 0; --merges, --height)
                stack[height - 2] += stack[height - 1];
        }
        line_at(out, i) = stack[0];
    }
}

}  // namespace

void tree_sum(const TreePlan& plan,
              std::span<const float* const> inputs,
              float* out,
              std::size_t count) {
    constexpr std::array balanced_four = {0, 1, 0, 2};
    const std::span<const int> merges = plan.merges_after();
    expect(inputs.size() == merges.size(), "one input for each partial");
    expect(count % line_floats == 0, "whole lines");
    if (inputs.size() == 1) {
        if (out != inputs[0]) std::memcpy(out, inputs[0], count * sizeof(float));
    } else if (inputs.size() == 2) {
        sum_two(inputs, out, count);
    } else if (std::ranges::equal(merges, balanced_four)) {
        sum_four(inputs, out, count);
    } else {
        sum_by_stack(merges, inputs, out, count);
    }
}

void add_into(float* into, const float* from, std::size_t count) {
    expect(count % line_floats == 0, "whole lines");
    for (std::size_t i = 0; i < count; i += line_floats) line_at(into, i) += line_at(from, i);
}

}  // namespace lockstep
