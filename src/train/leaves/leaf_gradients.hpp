// SPDX-License-Identifier: Apache-2.0
// What the operators in which a parameter meets samples add to its gradient, for one leaf.
#pragma once

#include "leaves/leaf_scope.hpp"

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

namespace lockstep {

/// By edge of a node: the gradient that goes there; undefined where none was asked for.
using EdgeGradients = std::vector<at::Tensor>;

/// A gradient as a product: sums over rows of left x right. See leaf_product().
struct DenseGradient {
    at::Tensor left, right;      ///< f32, contiguous, one row after another
    bool is_transposed = false;  ///< what the edge gets is the product's transpose
};

/// A node of autograd's graph whose parameters' gradients are sums over samples. Borrows the node.
class LeafNode {
  public:
    virtual ~LeafNode() = default;

    /// Whether the node's tensors have samples as their first dimension, nothing else stands in the
    /// way of gradients by leaf, and what goes along `edge` is a sum over samples.
    virtual bool fits(const LeafCut& cut, std::size_t edge) const = 0;

    /// The edge whose gradient is a product of so few rows a leaf that leaf_product() is what
    /// computes it.
    virtual std::optional<std::size_t> product_edge(const LeafCut&) const { return {}; }

    /// Of all leaves' rows. `gradient`: of the node's output.
    virtual DenseGradient product(const at::Tensor&) const { return {}; }

    /// Whether begin() is needed even where no parameter is.
    virtual bool replaces_kernel() const { return false; }

    /// Once a pass, before gradients(): `gradient` is that of all samples.
    virtual void begin(const at::Tensor&, const LeafCut&, LeafScope*) {}

    /// Of leaf `leaf` alone, for edges in `wanted`, in the library's own words and bits.
    virtual EdgeGradients gradients(const at::Tensor& gradient,
                                    const LeafCut& cut,
                                    std::int64_t leaf,
                                    const std::vector<bool>& wanted) const = 0;
};

/// Whether the node's output depends on a leaf's other samples.
bool is_batch_norm(const torch::autograd::Node& node);

/// Null for an operator that is not known.
std::unique_ptr<LeafNode> leaf_node(torch::autograd::Node& node);

}  // namespace lockstep
