// SPDX-License-Identifier: Apache-2.0
#include "replica/optimizer_step.hpp"

namespace lockstep {

void update_pieces(const Optimizer& optimizer,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops) {
    // Other copies prepare as well, for that changes their state; but they are not counted again.
    const auto own_rates = [&] {
        std::int64_t* sums = loops.sums(2 * tensors);
        for (const ParameterPiece& piece : pieces) {
            std::int64_t* const own = sums + 2 * piece.tensor * exact::words;
            optimizer.prepare(piece, step, {own, own + exact::words}, loops);
        }
        if (copy != ParameterCopy::first) sums = loops.sums(2 * tensors);
        loops.sum_over(ranks, sums, 2 * tensors);
        return loops.own_rates({.rule = optimizer.own_rate(),
                                .sums = sums,
                                .tensors = static_cast<std::int64_t>(tensors),
                                .rate = step.rate,
                                .scale = step.gradient_scale,
                                .decided = step.decided});
    };
    const bool has_rates = optimizer.own_rate().kind != OwnRateRule::Kind::none;
    const float* const rates = has_rates ? own_rates() : nullptr;
    for (const ParameterPiece& piece : pieces)
        optimizer.update(piece, has_rates ? rates + piece.tensor : nullptr, step, loops);
}

}  // namespace lockstep
