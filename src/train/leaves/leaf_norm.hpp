// SPDX-License-Identifier: Apache-2.0
// Batch norm of all leaves by the statistics of each, forward and backward. An undefined tensor is
// one that is not given.
#pragma once

#include "leaves/leaf_scope.hpp"

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {

struct NormCall;

/// What forward keeps for backward: values of each channel, leaf after leaf.
struct SavedNorm {
    at::Tensor mean;
    at::Tensor spread;   ///< 1 / deviation, or cuDNN's own
    at::Tensor reserve;  ///< cuDNN's own
};

struct NormOutput {
    at::Tensor output;
    SavedNorm saved;
};

struct NormGradients {
    at::Tensor samples, weight, bias;
};

/// An implementation in LibTorch.
struct NormKind {
    std::int64_t number;
    NormOutput (*forward)(const NormCall&);
    NormGradients (*backward)(const NormCall&, const SavedNorm&, const at::Tensor& gradient);
    bool takes_any_gradient;  ///< its bits do not depend on the gradient's layout
};
extern const NormKind native_norm, cudnn_norm;

struct NormCall {
    const NormKind* kind;
    at::Tensor samples, weight, bias, running_mean, running_variance;
    bool trains = false;  ///< by the samples' statistics
    double momentum = 0, epsilon = 0;
};

/// Updates the scope's buffers, not the running statistics.
NormOutput normalize_leaves(const NormCall& call, LeafScope& scope);

struct LeafNormGradients {
    at::Tensor samples;                    ///< of all leaves
    std::vector<at::Tensor> weight, bias;  ///< by leaf
};

/// `saved`: what normalize_leaves() has returned. `scope`: null if there was none, as where a leaf
/// of a CPU is computed by itself.
LeafNormGradients norm_gradients_of_leaves(const NormCall& call,
                                           const SavedNorm& saved,
                                           const at::Tensor& gradient,
                                           const LeafCut& cut,
                                           LeafScope* scope);

}  // namespace lockstep
