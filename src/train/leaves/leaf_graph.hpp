// SPDX-License-Identifier: Apache-2.0
// Computes gradients of parameters in place of autograd, if they must be summed by leaf.
#pragma once

#include "lockstep/comm/flat_layout.hpp"
#include "lockstep/comm/leaf_tree.hpp"
#include "lockstep/comm/reducer.hpp"

#include "leaves/leaf_scope.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
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

/// Gradients of all leaves by one operator.
struct GradientsAtOnce {
    std::vector<std::int64_t> key;        ///< see LeafVerdicts
    std::function<at::Tensor()> compute;  ///< leaf by leaf along the first dimension
};

/// A leaf whose gradients are asked for.
struct LeafCall {
    const at::Tensor& gradient;  ///< of the node's output, for all samples
    const LeafCut& cut;
    std::int64_t leaf;
    const std::vector<bool>& wanted;  ///< by edge

    /// Returns the leaf's part of `rows`.
    at::Tensor part(const at::Tensor& rows) const { return cut.part(rows, leaf); }
    /// Returns the leaf's part of `gradient`.
    at::Tensor part() const { return part(gradient); }
};

/// What an operator in which a parameter meets samples adds to its gradient, for one leaf: a node
/// of autograd's graph whose parameters' gradients are sums over samples. Borrows the node.
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

    /// What goes along an edge, if one operator can do it; it may have other bits than gradients().
    /// Of the output's gradient, by edge.
    virtual std::optional<GradientsAtOnce> at_once(const at::Tensor&,
                                                   const LeafCut&,
                                                   std::size_t) const {
        return {};
    }

    /// Whether begin() is needed even where no parameter is.
    virtual bool replaces_kernel() const { return false; }

    /// Once a pass, before gradients(): `gradient` is that of all samples.
    virtual void begin(const at::Tensor&, const LeafCut&, LeafScope*) {}

    /// Of one leaf alone, in the library's own words and bits.
    virtual EdgeGradients gradients(const LeafCall& call) const = 0;
};

/// Whether the node's output depends on a leaf's other samples.
bool is_batch_norm(const torch::autograd::Node& node);

/// Null for an operator that is not known.
std::unique_ptr<LeafNode> leaf_node(torch::autograd::Node& node);

/// Where the leaves that one pass computes add their gradients: slots of the replica, in the order
/// of the tree. Borrows the slots.
class LeafSums {
  public:
    /// `partials`: the number of slots of `memory`, from the first on, that hold the sums at the
    /// end.
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

    /// Returns the slot for the gradients of leaf `leaf`; call merge(leaf, range) afterwards.
    float* slot(std::size_t leaf) const { return slots_[at(places_[leaf].slot)]; }

    /// Calls `add` with the slots that merge(leaf, range) adds, in its order.
    template <class Add>
    void for_each_merge(std::size_t leaf, Add&& add) const {
        for (const LeafPlace::Merge& merge : places_[leaf].merges)
            add(slots_[at(merge.into)], slots_[at(merge.from)]);
    }

    /// Merges whole lines: padding after a tensor is zero.
    void merge(std::size_t leaf, FloatRange range) const {
        const std::size_t count = rounded_to_lines(range.size());
        for_each_merge(leaf, [&](float* into, const float* from) {
            memory_.add(into + range.begin, from + range.begin, count);
        });
    }

    /// Returns the merges for callers that merge by themselves, as sum_into() does, with the slots
    /// for the sums.
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

/// The parameters whose gradients are taken from autograd.
enum class Taking {
    all,       ///< all of them: leaves are computed together
    products,  ///< those whose gradients leaf_product() computes
};

/// The places of the gradients that are taken.
struct ParameterPlaces {
    std::span<const at::Tensor> parameters;
    std::function<FloatRange(std::size_t)> range;             ///< range in a slot
    std::function<at::Tensor(float*, std::size_t)> gradient;  ///< gradient in this slot
    std::function<void(std::size_t)> ready;                   ///< called when its sums are complete
};

/// The graph of one forward pass. It lives until its backward pass has ended, and borrows all its
/// parts.
class LeafGraph {
  public:
    /// `scope`: null if leaves are computed one by one.
    LeafGraph(const std::vector<at::Tensor>& losses,
              const ParameterPlaces& places,
              LeafCut cut,
              LeafScope* scope);
    ~LeafGraph();
    LeafGraph& operator=(LeafGraph&&) = delete;

    /// Returns the operator that prevents this; "": none does. A parameter meets samples in it and
    /// it is unknown, or its result depends on the memory address of a sample.
    const std::string& unknown() const { return unknown_; }

    /// Call before backward: autograd then no longer computes these parameters' gradients.
    void take(Taking which, const LeafSums& sums);

    /// Call after backward: adds the remaining gradients of some operators.
    void finish();

  private:
    struct Use;
    struct Parameter;
    struct Consumer;

    void walk(const std::vector<at::Tensor>& losses);
    void look_at(torch::autograd::Node& node, std::vector<torch::autograd::Node*>& next);
    Consumer& consumer_of(torch::autograd::Node& node);
    void check_samples(torch::autograd::Node& node);
    void add_use(Consumer& consumer, Use use, bool is_watched);
    void compute(Consumer& consumer, const at::Tensor& gradient);
    bool multiply(Consumer& consumer, const Use& use, const at::Tensor& gradient);
    bool compute_at_once(Consumer& consumer, const Use& use, const at::Tensor& gradient);
    void multiply_into(const DenseGradient& product, std::size_t parameter);
    at::Tensor leaf_gradient(const DenseGradient& product, std::size_t leaf) const;
    void add(const Use& use, std::size_t leaf, at::Tensor gradient);
    bool is_gathered(std::size_t parameter) const;
    void place(std::size_t parameter, std::size_t leaf, const at::Tensor& gradient);
    void note_use(std::size_t parameter);
    void place_gathered();

    ParameterPlaces places_;
    LeafCut cut_;
    const LeafSums* sums_ = nullptr;
    LeafScope* scope_;
    std::string unknown_;
    std::map<const void*, std::size_t> numbers_;  ///< numbers of parameters
    std::map<torch::autograd::Node*, std::unique_ptr<Consumer>> consumers_;
    std::vector<Parameter> parameters_;
    std::vector<std::size_t> gathered_;  ///< complete parameters that wait for place_gathered()
    std::size_t gathered_bytes_ = 0;
};

}  // namespace lockstep
