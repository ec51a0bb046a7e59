// SPDX-License-Identifier: Apache-2.0
// One class for each operator: it does the work of autograd's own node for a parameter, on one
// leaf's rows. Formulas are those of torch/csrc/autograd/FunctionsManual.cpp, which gives the same
// bits.
//
// What must never happen: a formula that differs from autograd's, or an operator whose samples are
// not its first dimension. This file cannot verify the latter: the rehearsal compares.
//
// Tested: train/leaves/leaves_test.cpp.

#include "leaves/leaf_graph.hpp"
#include "leaves/leaf_norm.hpp"
#include "leaves/leaf_product.hpp"

#include <array>
#include <map>
#include <memory>
#include <string>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace lockstep {
namespace {

namespace nodes = torch::autograd::generated;
using at::Tensor;
using torch::autograd::Node;

std::vector<std::int64_t> ints(const std::vector<c10::SymInt>& symbols) {
    std::vector<std::int64_t> values;
    for (const c10::SymInt& symbol : symbols) values.push_back(symbol.expect_int());
    return values;
}

bool is_one(const at::Scalar& scalar) {
    return scalar.equal(1);
}

bool has_few_rows(const Tensor& rows, const LeafCut& cut) {
    return rows.is_cpu() && rows.scalar_type() == at::kFloat &&
           rows.size(0) / cut.leaves <= static_cast<std::int64_t>(most_product_rows);
}

bool is_plain(const Tensor& tensor) {
    return tensor.defined() && tensor.layout() == at::kStrided;
}

// A product whose second factor is a parameter, at edge `edge`.
class Product : public LeafNode {
  public:
    template <class AutogradNode>
    Product(const Tensor& first, const AutogradNode& node, std::size_t edge)
        : first_(first),
          sizes_(ints(node.mat2_sym_sizes)),
          strides_(ints(node.mat2_sym_strides)),
          edge_(edge) {}
    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return edge == edge_ && is_plain(first_) && cut.divides(first_);
    }
    std::optional<std::size_t> product_edge(const LeafCut& cut) const override {
        return has_few_rows(first_, cut) ? std::optional(edge_) : std::nullopt;
    }
    // The transpose of [in, out] is what lies in memory of a weight [out, in], and of its gradient.
    DenseGradient product(const Tensor& gradient) const override {
        if (is_transposed()) return {gradient.contiguous(), first_.contiguous(), true};
        return {first_.contiguous(), gradient.contiguous(), false};
    }
    std::optional<GradientsAtOnce> at_once(const Tensor& gradient,
                                           const LeafCut& cut,
                                           std::size_t edge) const override {
        if (edge != edge_ || !gradient.is_contiguous() || !first_.is_contiguous()) return {};
        const Tensor first = cut.stacked(first_), second = cut.stacked(gradient);
        const bool turns = is_transposed();
        return {{.key = key_of(turns ? LeafOperator::turned_products : LeafOperator::products,
                               {first, second}),
                 .compute = [=] {
                     return turns ? second.mT().bmm(first).mT() : first.mT().bmm(second);
                 }}};
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        const Tensor first = call.part(first_), gradient = call.part();
        EdgeGradients all(edge_ + 1);
        if (call.wanted[edge_])
            all[edge_] = is_transposed() ? gradient.t().mm(first).t() : first.t().mm(gradient);
        return all;
    }

  private:
    bool is_transposed() const { return strides_[0] == 1 && strides_[1] == sizes_[0]; }

    Tensor first_;
    std::vector<std::int64_t> sizes_, strides_;
    std::size_t edge_;
};

class Mm : public Product {
  public:
    explicit Mm(nodes::MmBackward0& node) : Product(node.self_.unpack(), node, 1) {}
};

// Plus a parameter for each row.
class Addmm : public Product {
  public:
    explicit Addmm(nodes::AddmmBackward0& node)
        : Product(node.mat1_.unpack(), node, 2), node_(node) {}
    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return Product::fits(cut, edge == 0 ? 2 : edge) && is_one(node_.alpha) &&
               is_one(node_.beta);
    }
    std::optional<GradientsAtOnce> at_once(const Tensor& gradient,
                                           const LeafCut& cut,
                                           std::size_t edge) const override {
        if (edge != 0) return Product::at_once(gradient, cut, edge);
        if (!gradient.is_contiguous()) return {};
        const Tensor rows = cut.stacked(gradient);
        return {
            {.key = key_of(LeafOperator::sums, {rows}), .compute = [=] { return rows.sum(1); }}};
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        EdgeGradients all = Product::gradients(call);
        if (call.wanted[0]) all[0] = call.part();
        return all;
    }

  private:
    nodes::AddmmBackward0& node_;
};

class Convolution : public LeafNode {
  public:
    explicit Convolution(nodes::ConvolutionBackward0& node)
        : input_(node.input_.unpack()),
          weight_(node.weight_.unpack()),
          stride_(by_side(node.stride)),
          padding_(by_side(node.padding)),
          dilation_(by_side(node.dilation)),
          output_padding_(ints(node.output_padding)),
          groups_(node.groups.expect_int()),
          is_transposed_(node.transposed) {}

    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return edge != 0 && is_plain(input_) && cut.divides(input_);
    }

    std::optional<std::size_t> product_edge(const LeafCut& cut) const override {
        const bool is_usual = input_.is_cpu() && input_.dim() == 4 && groups_ == 1 &&
                              !is_transposed_ && input_.scalar_type() == at::kFloat;
        if (!is_usual) return {};
        const std::int64_t places = rule(0).places * rule(1).places;
        const std::int64_t rows = input_.size(0) / cut.leaves * places;
        if (rows > static_cast<std::int64_t>(most_product_rows)) return {};
        return 1;
    }
    DenseGradient product(const Tensor& gradient) const override {
        return {gradient.permute({0, 2, 3, 1}).reshape({-1, gradient.size(1)}).contiguous(),
                image_columns(input_, rule(0), rule(1)),
                false};
    }
    // Leaves as groups of one convolution. Not in 16 bits: those of few numbers can be the same,
    // once, after sums in another order.
    std::optional<GradientsAtOnce> at_once(const Tensor& gradient,
                                           const LeafCut& cut,
                                           std::size_t edge) const override {
        if (gradient.scalar_type() != at::kFloat || !cut.is_small(input_) ||
            !cut.is_small(gradient))
            return {};
        const std::int64_t kind[] = {groups_, is_transposed_, static_cast<std::int64_t>(edge)};
        return {{.key = key_of(LeafOperator::convolution_weights,
                               {gradient, input_, weight_},
                               {stride_, padding_, dilation_, output_padding_, kind}),
                 .compute = [=, this] {
                     std::vector<std::int64_t> sizes = weight_.sizes().vec();
                     sizes[0] *= cut.leaves;
                     const Tensor shape =
                         at::empty(sizes, weight_.options(), weight_.suggest_memory_format());
                     return backward(cut.side_by_side(gradient),
                                     cut.side_by_side(input_),
                                     shape,
                                     groups_ * cut.leaves,
                                     {false, edge == 1, edge == 2})[edge]
                         .unflatten(0, {cut.leaves, -1});
                 }}};
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        return backward(call.part(),
                        call.part(input_),
                        weight_,
                        groups_,
                        {false, call.wanted[1], call.wanted[2]});
    }

  private:
    EdgeGradients backward(const Tensor& gradient,
                           const Tensor& input,
                           const Tensor& weight,
                           std::int64_t groups,
                           std::array<bool, 3> wanted) const {
        const std::vector<std::int64_t> bias_sizes = {gradient.size(1)};
        auto [of_input, of_weight, of_bias] = at::convolution_backward(gradient,
                                                                       input,
                                                                       weight,
                                                                       bias_sizes,
                                                                       stride_,
                                                                       padding_,
                                                                       dilation_,
                                                                       is_transposed_,
                                                                       output_padding_,
                                                                       groups,
                                                                       wanted);
        return {of_input, of_weight, of_bias};
    }

    // One number may stand for all sides.
    std::vector<std::int64_t> by_side(const std::vector<c10::SymInt>& symbols) const {
        const std::vector<std::int64_t> given = ints(symbols);
        const auto sides = static_cast<std::size_t>(input_.dim()) - 2;
        return given.size() == sides ? given : std::vector<std::int64_t>(sides, given.at(0));
    }

    // Returns the rule of the output's height or width.
    SlideRule rule(std::size_t side) const {
        SlideRule rule{.kernel = weight_.size(static_cast<std::int64_t>(side) + 2),
                       .stride = stride_[side],
                       .padding = padding_[side],
                       .dilation = dilation_[side],
                       .places = 1};
        const std::int64_t seen = rule.dilation * (rule.kernel - 1) + 1;
        const std::int64_t size = input_.size(static_cast<std::int64_t>(side) + 2);
        rule.places = (size + 2 * rule.padding - seen) / rule.stride + 1;
        return rule;
    }

    Tensor input_, weight_;
    std::vector<std::int64_t> stride_, padding_, dilation_, output_padding_;
    std::int64_t groups_;
    bool is_transposed_;
};

// Its kernels are the scope's: the statistics of a leaf follow those of the one before.
class BatchNorm : public LeafNode {
  public:
    explicit BatchNorm(nodes::NativeBatchNormBackward0& node)
        : BatchNorm(node, native_norm, node.eps) {}
    explicit BatchNorm(nodes::CudnnBatchNormBackward0& node)
        : BatchNorm(node, cudnn_norm, node.epsilon) {
        saved_.reserve = node.result3_.unpack(node.getptr());
    }

    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return edge != 0 && is_plain(call_.samples) && cut.divides(call_.samples);
    }

    bool replaces_kernel() const override { return true; }

    void begin(const Tensor& gradient, const LeafCut& cut, LeafScope* scope) override {
        gradients_ = norm_gradients_of_leaves(call_, saved_, gradient, cut, scope);
        if (scope != nullptr && leads_on_) scope->norm_input_gradient = gradients_.samples;
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        const auto leaf = static_cast<std::size_t>(call.leaf);
        return {Tensor(), gradients_.weight[leaf], gradients_.bias[leaf]};
    }

  private:
    template <class AutogradNode>
    BatchNorm(AutogradNode& node, const NormKind& kind, double epsilon)
        : call_{.kind = &kind,
                .samples = node.input_.unpack(),
                .weight = node.weight_.unpack(),
                .bias = {},
                .running_mean = node.running_mean_.unpack(),
                .running_variance = node.running_var_.unpack(),
                .trains = node.training,
                .epsilon = epsilon},
          saved_{.mean = node.result1_.unpack(node.getptr()),
                 .spread = node.result2_.unpack(node.getptr()),
                 .reserve = {}},
          leads_on_(node.next_edge(0).is_valid()) {}

    NormCall call_;
    SavedNorm saved_;
    bool leads_on_;
    LeafNormGradients gradients_;
};

class LayerNorm : public LeafNode {
  public:
    explicit LayerNorm(nodes::NativeLayerNormBackward0& node)
        : input_(node.input_.unpack()),
          weight_(node.weight_.unpack()),
          bias_(node.bias_.unpack()),
          mean_(node.result1_.unpack(node.getptr())),
          deviation_(node.result2_.unpack(node.getptr())),
          shape_(ints(node.normalized_shape)) {}

    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return edge != 0 && is_plain(input_) && cut.divides(input_) && cut.divides(mean_);
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        auto [input, weight, bias] =
            at::native_layer_norm_backward(call.part(),
                                           call.part(input_),
                                           shape_,
                                           call.part(mean_),
                                           call.part(deviation_),
                                           weight_,
                                           bias_,
                                           {false, call.wanted[1], call.wanted[2]});
        return {input, weight, bias};
    }

  private:
    Tensor input_, weight_, bias_, mean_, deviation_;
    std::vector<std::int64_t> shape_;
};

class GroupNorm : public LeafNode {
  public:
    explicit GroupNorm(nodes::NativeGroupNormBackward0& node)
        : input_(node.input_.unpack()),
          weight_(node.weight_.unpack()),
          mean_(node.result1_.unpack(node.getptr())),
          deviation_(node.result2_.unpack(node.getptr())),
          channels_(node.C.expect_int()),
          places_(node.HxW.expect_int()),
          groups_(node.group) {}

    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return edge != 0 && is_plain(input_) && cut.divides(input_) && cut.divides(mean_);
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        const Tensor part = call.part(input_);
        const at::MemoryFormat layout = input_.suggest_memory_format();
        // Where channels lie last LibTorch 2.11's kernel for CPUs writes the input's gradient,
        // wanted or not.
        const bool wants_input = layout != at::MemoryFormat::Contiguous;
        auto [input, weight, bias] =
            at::native_group_norm_backward(call.part().contiguous(layout),
                                           part,
                                           call.part(mean_),
                                           call.part(deviation_),
                                           weight_,
                                           part.size(0),
                                           channels_,
                                           places_,
                                           groups_,
                                           {wants_input, call.wanted[1], call.wanted[2]});
        return {input, weight, bias};
    }

  private:
    Tensor input_, weight_, mean_, deviation_;
    std::int64_t channels_, places_, groups_;
};

class Embedding : public LeafNode {
  public:
    explicit Embedding(nodes::EmbeddingBackward0& node)
        : node_(node), indices_(node.indices_.unpack()) {}

    // One dimension may as well be the places of a sequence.
    bool fits(const LeafCut& cut, std::size_t) const override {
        return is_plain(indices_) && indices_.dim() >= 2 && cut.divides(indices_) && !node_.sparse;
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        return {at::embedding_backward(call.part(),
                                       call.part(indices_),
                                       node_.weight_sym_argsize_0.expect_int(),
                                       node_.padding_idx.expect_int(),
                                       node_.scale_grad_by_freq,
                                       node_.sparse)};
    }

  private:
    nodes::EmbeddingBackward0& node_;
    Tensor indices_;
};

// A parameter that every sample gets: the gradient as it comes, which is then summed to its shape.
class Spread : public LeafNode {
  public:
    explicit Spread(Node& node) : node_(node) {}

    // Of the shape of the whole it would be something of each sample.
    bool fits(const LeafCut& cut, std::size_t edge) const override {
        const auto whole = node_.input_metadata(0).shape_as_dim_vector();
        const torch::autograd::Edge& to = node_.next_edge(edge);
        return !whole.empty() && whole[0].expect_int() % cut.samples() == 0 &&
               to.function->input_metadata(to.input_nr).shape_as_dim_vector() != whole;
    }
    EdgeGradients gradients(const LeafCall& call) const override {
        return EdgeGradients(call.wanted.size(), call.part());
    }

  private:
    Node& node_;
};

// x + factor * y
class Add : public Spread {
  public:
    explicit Add(nodes::AddBackward0& node) : Spread(node), node_(node) {}
    bool fits(const LeafCut& cut, std::size_t edge) const override {
        return Spread::fits(cut, edge) && is_one(node_.alpha);
    }

  private:
    nodes::AddBackward0& node_;
};

template <class Kind, class AutogradNode>
std::unique_ptr<LeafNode> make(Node& node) {
    return std::make_unique<Kind>(static_cast<AutogradNode&>(node));
}

}  // namespace

bool is_batch_norm(const Node& node) {
    return node.name() == "NativeBatchNormBackward0" || node.name() == "CudnnBatchNormBackward0";
}

std::unique_ptr<LeafNode> leaf_node(Node& node) {
    using Make = std::unique_ptr<LeafNode> (*)(Node&);
    static const std::map<std::string, Make> kinds = {
        {"AddBackward0", make<Add, nodes::AddBackward0>},
        {"AddmmBackward0", make<Addmm, nodes::AddmmBackward0>},
        {"ConvolutionBackward0", make<Convolution, nodes::ConvolutionBackward0>},
        {"CudnnBatchNormBackward0", make<BatchNorm, nodes::CudnnBatchNormBackward0>},
        {"EmbeddingBackward0", make<Embedding, nodes::EmbeddingBackward0>},
        {"ExpandBackward0", make<Spread, Node>},
        {"MmBackward0", make<Mm, nodes::MmBackward0>},
        {"NativeBatchNormBackward0", make<BatchNorm, nodes::NativeBatchNormBackward0>},
        {"NativeGroupNormBackward0", make<GroupNorm, nodes::NativeGroupNormBackward0>},
        {"NativeLayerNormBackward0", make<LayerNorm, nodes::NativeLayerNormBackward0>}};
    const auto found = kinds.find(node.name());
    return found == kinds.end() ? nullptr : found->second(node);
}

}  // namespace lockstep
