// SPDX-License-Identifier: Apache-2.0
// Autograd's graph of one pass over all of a rank's leaves, and the edges that are cut:
//
//     loss --> ... --> AddmmBackward0 --> ReluBackward0 --> ... --> input
//                        |  (hook)
//                        +--x--> TBackward0 --> AccumulateGrad of the weight
//
// A node in which a parameter meets samples keeps its edge to the input, along which the gradient
// of all samples flows at once. Its edges to parameters are cut (x), and a hook before it computes
// their gradients, leaf by leaf, into slots in the order of the tree. Nodes in between, without
// samples, are applied to each leaf's part.
//
// What must never happen:
// - A parameter's gradient comes by both ways: all of its uses are taken, or none is.
// - A node that is not known keeps a parameter while others are summed by leaf: unknown() says its
//   name, and leaves are computed one by one.
// - The sign of a zero differs from what accumulation into zeros gives: see place().
//
// Tested: train/leaves/leaves_test.cpp, e2e/device_test.cpp (on GPUs).

#include "leaves/leaf_graph.hpp"

#include "leaves/leaf_product.hpp"

#include <algorithm>
#include <set>

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/generated/Functions.h>

namespace lockstep {
namespace {

using at::Tensor;
using torch::autograd::AccumulateGrad;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

// A hook of the model's own, which would not be called.
bool has_hooks(Node& node) {
    return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
           !node.retains_grad_hooks().empty();
}

// Vectors and what is left of them round differently in functions that are no single operation, so
// that a value depends on its place; with several threads on that of their shares, too.
bool depends_on_place(Node& node, const LeafCut& cut) {
    static const std::set<std::string> names = {
        "AcosBackward0",  "AsinBackward0",       "AtanBackward0",      "CosBackward0",
        "EluBackward0",   "ErfBackward0",        "ExpBackward0",       "Expm1Backward0",
        "GeluBackward0",  "GluBackward0",        "HardswishBackward0", "LogBackward0",
        "Log1PBackward0", "LogSigmoidBackward0", "MishBackward0",      "PowBackward0",
        "PowBackward1",   "RsqrtBackward0",      "SigmoidBackward0",   "SiluBackward0",
        "SinBackward0",   "SoftplusBackward0",   "TanhBackward0"};
    if (!names.contains(node.name())) return false;
    const auto& output = node.input_metadata(0);
    if (output.device().is_cpu() && at::get_num_threads() > 1) return true;
    constexpr std::int64_t whole_vectors = 64;
    std::int64_t count = 1;
    for (const c10::SymInt& extent : output.shape_as_dim_vector()) count *= extent.expect_int();
    return count % (cut.leaves * whole_vectors) != 0;
}

// Linear, one input, one output: of a leaf's gradient they make a leaf's gradient.
bool passes_on(Node& node) {
    static const std::set<std::string> names = {"CloneBackward0",
                                                "EmbeddingBackward0",
                                                "PermuteBackward0",
                                                "ReshapeAliasBackward0",
                                                "SelectBackward0",
                                                "SliceBackward0",
                                                "SqueezeBackward1",
                                                "TBackward0",
                                                "ToCopyBackward0",
                                                "TransposeBackward0",
                                                "UnsafeViewBackward0",
                                                "UnsqueezeBackward0",
                                                "ViewBackward0"};
    if (node.num_outputs() != 1 || !names.contains(node.name())) return false;
    // Of the places of a sequence; with more dimensions the first one is that of samples.
    const auto* embedding = dynamic_cast<torch::autograd::generated::EmbeddingBackward0*>(&node);
    return embedding == nullptr || embedding->indices_.unpack().dim() == 1;
}

// Does the validation of autograd's engine: the sum over dimensions that were expanded.
Tensor fitted(Tensor gradient, const Edge& edge) {
    const auto& wanted = edge.function->input_metadata(edge.input_nr);
    if (gradient.sym_sizes() != wanted.shape_as_dim_vector())
        gradient = wanted.reduce_grad(gradient);
    return gradient.scalar_type() == wanted.dtype()
               ? gradient
               : gradient.to(c10::typeMetaToScalarType(wanted.options().dtype()));
}

RowMatrix matrix(const Tensor& rows) {
    return {rows.const_data_ptr<float>(), static_cast<std::size_t>(rows.size(1))};
}

constexpr std::size_t most_gathered_bytes = 32 << 20;

// The merges of all leaves; those of one round do not depend on each other.
struct MergeRounds {
    explicit MergeRounds(const LeafSums& sums) {
        std::vector<std::size_t> next_round(sums.leaves());
        for (std::size_t leaf = 0; leaf < sums.leaves(); ++leaf) {
            leaf_in[sums.slot(leaf)] = leaf;
            sums.for_each_merge(leaf, [&](float* to, float* from) {
                const std::size_t into = leaf_in.at(to), other = leaf_in.at(from);
                const std::size_t round = std::max(next_round[into], next_round[other]);
                if (rounds.size() == round) rounds.emplace_back();
                rounds[round].emplace_back(into, other);
                next_round[into] = round + 1;
            });
        }
    }

    std::vector<std::vector<std::pair<std::size_t, std::size_t>>> rounds;  ///< into, from
    std::map<float*, std::size_t> leaf_in;  ///< by slot: the leaf that its sum begins with
};

struct BeforeNode : torch::autograd::FunctionPreHook {
    explicit BeforeNode(std::function<void(const Tensor&)> compute)
        : compute_(std::move(compute)) {}
    variable_list operator()(const variable_list& gradients) override {
        if (gradients[0].defined()) compute_(gradients[0]);
        return gradients;
    }

    std::function<void(const Tensor&)> compute_;
};

}  // namespace

// The use of a parameter by a node.
struct LeafGraph::Use {
    std::size_t edge = 0;  ///< edge of the node
    Edge to;               ///< its former target
    std::vector<Node*> between;
    std::size_t parameter = 0;
};

struct LeafGraph::Parameter {
    std::size_t uses = 0, done = 0;
    bool is_known = true, has_product = false, is_taken = false;
    std::vector<Tensor> by_leaf;  ///< sums of several uses, or gathered
};

struct LeafGraph::Consumer {
    Node* node = nullptr;
    std::unique_ptr<LeafNode> gradients;  ///< null: not known
    std::vector<Use> uses;
};

LeafGraph::LeafGraph(const std::vector<Tensor>& losses,
                     const ParameterPlaces& places,
                     LeafCut cut,
                     LeafScope* scope)
    : places_(places), cut_(cut), scope_(scope), parameters_(places.parameters.size()) {
    for (std::size_t i = 0; i < places.parameters.size(); ++i)
        numbers_[places.parameters[i].unsafeGetTensorImpl()] = i;
    walk(losses);
}

LeafGraph::~LeafGraph() = default;

void LeafGraph::walk(const std::vector<Tensor>& losses) {
    std::set<Node*> seen;
    std::vector<Node*> next;
    for (const Tensor& loss : losses)
        if (loss.grad_fn()) next.push_back(loss.grad_fn().get());
    while (!next.empty()) {
        Node* const node = next.back();
        next.pop_back();
        if (seen.insert(node).second) look_at(*node, next);
    }
}

void LeafGraph::look_at(Node& node, std::vector<Node*>& next) {
    if (scope_ != nullptr) check_samples(node);
    for (std::size_t i = 0; i < node.num_outputs(); ++i) {
        const Edge& edge = node.next_edge(i);
        if (!edge.is_valid()) continue;
        Use use{.edge = i, .to = edge, .between = {}};
        Node* end = edge.function.get();
        while (passes_on(*end) && end->next_edge(0).is_valid()) {
            use.between.push_back(end);
            end = end->next_edge(0).function.get();
        }
        const auto* leads_to = dynamic_cast<const AccumulateGrad*>(end);
        const auto found = leads_to == nullptr
                               ? numbers_.end()
                               : numbers_.find(leads_to->variable.unsafeGetTensorImpl());
        if (found == numbers_.end()) {
            next.push_back(edge.function.get());
            continue;
        }
        use.parameter = found->second;
        add_use(consumer_of(node), std::move(use), has_hooks(*end));
    }
}

LeafGraph::Consumer& LeafGraph::consumer_of(Node& node) {
    auto& consumer = consumers_[&node];
    if (!consumer) consumer = std::make_unique<Consumer>(Consumer{&node, leaf_node(node), {}});
    return *consumer;
}

// Checks whether the operator's result for a sample is the same in a leaf alone, as far as its name
// and shape show.
void LeafGraph::check_samples(Node& node) {
    if (depends_on_place(node, cut_)) unknown_ = node.name();
    if (!is_batch_norm(node)) return;
    const Consumer& norm = consumer_of(node);
    if (!norm.gradients->fits(cut_, 1)) unknown_ = node.name();
}

void LeafGraph::add_use(Consumer& consumer, Use use, bool is_watched) {
    Parameter& parameter = parameters_[use.parameter];
    ++parameter.uses;
    is_watched = is_watched || std::ranges::any_of(
                                   use.between, [](Node* between) { return has_hooks(*between); });
    if (is_watched || !consumer.gradients || !consumer.gradients->fits(cut_, use.edge)) {
        parameter.is_known = false;
        unknown_ = consumer.node->name();
    } else if (consumer.gradients->product_edge(cut_) == use.edge) {
        parameter.has_product = true;
    }
    consumer.uses.push_back(std::move(use));
}

void LeafGraph::take(Taking which, const LeafSums& sums) {
    sums_ = &sums;
    for (Parameter& parameter : parameters_)
        parameter.is_taken = parameter.uses > 0 && parameter.is_known &&
                             (which == Taking::all || parameter.has_product);
    for (auto& [node, consumer] : consumers_) {
        std::erase_if(consumer->uses,
                      [&](const Use& use) { return !parameters_[use.parameter].is_taken; });
        const bool is_needed =
            scope_ != nullptr && consumer->gradients && consumer->gradients->replaces_kernel();
        if (consumer->uses.empty() && !is_needed) {
            consumer->gradients.reset();  // and what it holds
            continue;
        }
        // Not set_next_edge(), which is for nodes that nothing leads to yet.
        for (const Use& use : consumer->uses) node->next_edges()[use.edge] = Edge();
        node->add_pre_hook(
            std::make_unique<BeforeNode>([this, consumer = consumer.get()](const Tensor& gradient) {
                compute(*consumer, gradient);
            }));
    }
}

void LeafGraph::compute(Consumer& consumer, const Tensor& gradient) {
    const LeafScope::Pause pause;
    LeafNode& node = *consumer.gradients;
    node.begin(gradient, cut_, scope_);
    std::vector<bool> wanted(consumer.node->num_outputs(), false);
    std::vector<const Use*> left;
    for (const Use& use : consumer.uses) {
        if (multiply(consumer, use, gradient) || compute_at_once(consumer, use, gradient)) continue;
        wanted[use.edge] = true;
        left.push_back(&use);
    }
    if (!left.empty())
        for (std::size_t leaf = 0; leaf < sums_->leaves(); ++leaf) {
            const EdgeGradients all =
                node.gradients({gradient, cut_, static_cast<std::int64_t>(leaf), wanted});
            for (const Use* use : left) add(*use, leaf, all[use->edge]);
        }
    for (const Use& use : consumer.uses) note_use(use.parameter);
    consumer.gradients.reset();  // autograd frees a node's saved values in the same way
}

// Returns true if the gradient of this use was the whole of its parameter, computed as a product of
// all leaves at once.
bool LeafGraph::multiply(Consumer& consumer, const Use& use, const Tensor& gradient) {
    const LeafNode& node = *consumer.gradients;
    if (node.product_edge(cut_) != use.edge) return false;
    const DenseGradient product = node.product(gradient);
    const bool turns_only = std::ranges::all_of(
        use.between, [](const Node* between) { return between->name() == "TBackward0"; });
    const bool is_turned = use.between.size() % 2 == 1;
    const Parameter& parameter = parameters_[use.parameter];
    if (parameter.uses == 1 && turns_only && is_turned == product.is_transposed) {
        multiply_into(product, use.parameter);
        return true;
    }
    for (std::size_t leaf = 0; leaf < sums_->leaves(); ++leaf)
        add(use, leaf, leaf_gradient(product, leaf));
    return true;
}

// Returns true if one launch computed this use's gradients of all leaves of a GPU, with the bits of
// each leaf alone.
bool LeafGraph::compute_at_once(Consumer& consumer, const Use& use, const Tensor& gradient) {
    if (scope_ == nullptr || !is_gathered(use.parameter)) return false;
    const LeafNode& node = *consumer.gradients;
    auto at_once = node.at_once(gradient, cut_, use.edge);
    if (!at_once) return false;
    const auto& to = use.to.function->input_metadata(use.to.input_nr);
    for (const c10::SymInt& extent : to.shape_as_dim_vector())
        at_once->key.push_back(extent.expect_int());
    std::vector<bool> wanted(consumer.node->num_outputs(), false);
    wanted[use.edge] = true;
    const auto is_same = [&] {
        const Tensor all = at_once->compute();
        for (std::int64_t leaf = 0; leaf < cut_.leaves; ++leaf) {
            const Tensor alone =
                fitted(node.gradients({gradient, cut_, leaf, wanted})[use.edge], use.to);
            if (!LeafScope::has_same_bits(all.select(0, leaf), alone)) return false;
        }
        return true;
    };
    if (!scope_->decide(at_once->key, is_same)) return false;
    const Tensor all = at_once->compute();
    for (std::size_t leaf = 0; leaf < sums_->leaves(); ++leaf)
        add(use, leaf, all.select(0, static_cast<std::int64_t>(leaf)));
    return true;
}

void LeafGraph::multiply_into(const DenseGradient& product, std::size_t parameter) {
    const FloatRange range = places_.range(parameter);
    std::vector<float*> outputs;
    for (float* slot : sums_->partials()) outputs.push_back(slot + range.begin);
    std::vector<std::size_t> ends;
    const auto rows = static_cast<std::size_t>(product.left.size(0)) / sums_->leaves();
    for (std::size_t leaf = 1; leaf <= sums_->leaves(); ++leaf) ends.push_back(leaf * rows);
    leaf_product(matrix(product.left), matrix(product.right), ends, sums_->merges_after(), outputs);
}

Tensor LeafGraph::leaf_gradient(const DenseGradient& product, std::size_t leaf) const {
    const Tensor left = cut_.part(product.left, static_cast<std::int64_t>(leaf));
    const Tensor right = cut_.part(product.right, static_cast<std::int64_t>(leaf));
    Tensor result = at::empty({left.size(1), right.size(1)}, left.options());
    const auto rows = static_cast<std::size_t>(left.size(0));
    constexpr int no_merges = 0;
    float* const output = result.data_ptr<float>();
    leaf_product(matrix(left), matrix(right), {&rows, 1}, {&no_merges, 1}, {&output, 1});
    return product.is_transposed ? result.t() : result;
}

void LeafGraph::add(const Use& use, std::size_t leaf, Tensor gradient) {
    gradient = fitted(std::move(gradient), use.to);
    for (Node* const between : use.between) {
        gradient = (*between)(variable_list{std::move(gradient)})[0];
        gradient = fitted(std::move(gradient), between->next_edge(0));
    }
    Parameter& parameter = parameters_[use.parameter];
    if (parameter.uses == 1 && !is_gathered(use.parameter)) {
        place(use.parameter, leaf, gradient);
        return;
    }
    parameter.by_leaf.resize(sums_->leaves());
    Tensor& sum = parameter.by_leaf[leaf];
    sum = sum.defined() ? sum + gradient : gradient;
}

// Added to zero, as autograd accumulates: of -0 that makes 0.
void LeafGraph::place(std::size_t parameter, std::size_t leaf, const Tensor& gradient) {
    Tensor to = places_.gradient(sums_->slot(leaf), parameter);
    at::add_out(to, gradient, at::zeros({}));
    if (to.is_cpu()) return sums_->merge(leaf, places_.range(parameter));
    // The same bits on LibTorch's stream, which may be recording.
    sums_->for_each_merge(leaf, [&](float* into, float* from) {
        places_.gradient(into, parameter).add_(places_.gradient(from, parameter));
    });
}

// On a GPU a sum of a few leaves is a matter of launches, of many bytes one of memory.
bool LeafGraph::is_gathered(std::size_t number) const {
    const Tensor& parameter = places_.parameters[number];
    return !parameter.is_cpu() && parameter.nbytes() * sums_->leaves() <= most_gathered_bytes;
}

// Uses are added up before leaves are.
void LeafGraph::note_use(std::size_t number) {
    Parameter& parameter = parameters_[number];
    if (++parameter.done < parameter.uses) return;
    if (is_gathered(number)) {
        gathered_.push_back(number);
        for (const Tensor& gradient : parameter.by_leaf) gathered_bytes_ += gradient.nbytes();
        if (gathered_bytes_ > most_gathered_bytes) place_gathered();
        return;
    }
    for (std::size_t leaf = 0; leaf < parameter.by_leaf.size(); ++leaf)
        place(number, leaf, parameter.by_leaf[leaf]);
    parameter.by_leaf.clear();
    places_.ready(number);
}

// Has the bits of place(), with one launch for all parameters and all merges of a round. Lists are
// not added in place: a gradient may be a part of another one.
void LeafGraph::place_gathered() {
    if (gathered_.empty()) return;
    const MergeRounds merges(*sums_);
    for (const auto& round : merges.rounds) {
        std::vector<Tensor> left, right;
        for (const std::size_t number : gathered_)
            for (const auto& [into, from] : round) {
                left.push_back(parameters_[number].by_leaf[into]);
                right.push_back(parameters_[number].by_leaf[from]);
            }
        const std::vector<Tensor> added = at::_foreach_add(left, right);
        auto next = added.begin();
        for (const std::size_t number : gathered_)
            for (const auto& [into, from] : round) parameters_[number].by_leaf[into] = *next++;
    }
    std::vector<Tensor> to, from;
    for (const std::size_t number : gathered_)
        for (float* const slot : sums_->partials()) {
            to.push_back(places_.gradient(slot, number));
            from.push_back(parameters_[number].by_leaf[merges.leaf_in.at(slot)]);
        }
    at::_foreach_copy_(to, from);
    at::_foreach_add_(to, 0);  // of -0 it makes 0
    gathered_bytes_ = 0;
    for (const std::size_t number : std::exchange(gathered_, {})) {
        parameters_[number].by_leaf.clear();
        places_.ready(number);
    }
}

void LeafGraph::finish() {
    place_gathered();
    for (std::size_t number = 0; number < parameters_.size(); ++number) {
        Parameter& parameter = parameters_[number];
        if (!parameter.is_taken || parameter.by_leaf.empty()) continue;
        parameter.done = parameter.uses - 1;
        note_use(number);
    }
    place_gathered();
}

}  // namespace lockstep
