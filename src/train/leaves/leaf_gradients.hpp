// SPDX-License-Identifier: Apache-2.0
// Gradients of parameters for one leaf, from the operators in which parameters meet samples.
#pragma once

#include "leaves/leaf_scope.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep {

/// Gradients by edge of a node; undefined if not requested.
using EdgeGradients = std::vector<at::Tensor>;

/// A gradient as a product: sums over rows of left x right. See leaf_product().
struct DenseGradient {
    at::Tensor left, right;      ///< f32, contiguous, one row after another
    bool is_transposed = false;  ///< the edge gets the product's transpose
};

/// A node of autograd's graph whose parameters' gradients are sums over samples. Borrows the node.
class LeafNode {
  public:
    virtual ~LeafNode() = default;

    /// Returns true if gradients by leaf are possible: the node's tensors have samples as their
    /// first dimension, and the gradient on `edge` is a sum over samples.
    virtual bool fits(const LeafCut& cut, std::size_t edge) const = 0;

    /// Returns the edge whose gradient is a product of so few rows per leaf that leaf_product()
    /// computes it.
    virtual std::optional<std::size_t> product_edge(const LeafCut&) const { return {}; }

    /// Returns the product over all leaves' rows. `gradient`: that of the node's output.
    virtual DenseGradient product(const at::Tensor&) const { return {}; }

    /// Returns true if begin() is needed even without parameters.
    virtual bool replaces_kernel() const { return false; }

    /// Called once per pass, before gradients(): `gradient` is that of all samples.
    virtual void begin(const at::Tensor&, const LeafCut&, LeafScope*) {}

    /// Returns the gradients of leaf `leaf` alone, for edges in `wanted`, by the library's own
    /// operators and with their bits.
    virtual EdgeGradients gradients(const at::Tensor& gradient,
                                    const LeafCut& cut,
                                    std::int64_t leaf,
                                    const std::vector<bool>& wanted) const = 0;
};

/// Returns true if the node's output depends on a leaf's other samples.
bool is_batch_norm(const torch::autograd::Node& node);

/// Returns null for an unknown operator.
std::unique_ptr<LeafNode> leaf_node(torch::autograd::Node& node);

}  // namespace lockstep
