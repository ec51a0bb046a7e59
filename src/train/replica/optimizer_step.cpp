// SPDX-License-Identifier: Apache-2.0
#include "replica/optimizer_step.hpp"

#include <cmath>
#include <vector>

namespace lockstep {
namespace {

// Other copies prepare as well, for that changes their state; but they are not counted again.
std::vector<TensorNorms> norms_of(const Optimizer& optimizer,
                                  const Communicator& ranks,
                                  std::span<const ParameterPiece> pieces,
                                  ParameterCopy copy,
                                  std::size_t tensors,
                                  const UpdateStep& step,
                                  UpdateLoops& loops) {
    std::vector<TensorSums> own(tensors);
    for (const ParameterPiece& piece : pieces)
        optimizer.prepare(piece, step, own[piece.tensor], loops);
    if (copy != ParameterCopy::first) own.assign(tensors, {});
    std::vector<ExactSum> sums;
    for (const TensorSums& tensor : own) {
        sums.push_back(tensor.weights);
        sums.push_back(tensor.updates);
    }
    sum_over(ranks, sums);
    std::vector<TensorNorms> norms;
    for (std::size_t i = 0; i < tensors; ++i)
        norms.push_back({std::sqrt(sums[2 * i].value()), std::sqrt(sums[2 * i + 1].value())});
    return norms;
}

}  // namespace

void update_pieces(const Optimizer& optimizer,
                   const Communicator& ranks,
                   std::span<const ParameterPiece> pieces,
                   ParameterCopy copy,
                   std::size_t tensors,
                   const UpdateStep& step,
                   UpdateLoops& loops) {
    const std::vector<TensorNorms> norms =
        optimizer.norm_use() == NormUse::none
            ? std::vector<TensorNorms>(tensors)
            : norms_of(optimizer, ranks, pieces, copy, tensors, step, loops);
    for (const ParameterPiece& piece : pieces)
        optimizer.update(piece, norms[piece.tensor], step, loops);
}

}  // namespace lockstep
