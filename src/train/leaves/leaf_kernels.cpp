// SPDX-License-Identifier: Apache-2.0
// Kernels that run before LibTorch's own, on any device, below autograd, which does not notice.
// They use a dispatch key that LibTorch reserves without a use, and that tensors do not have. A
// LeafScope adds it to the calls of its thread, and autograd's engine to those of backward on its
// own thread; the kernels call LibTorch's without it.
//
//     samples     leaf 0 | leaf 1 | ...   one call of the library for each leaf's rows
//     batch norm  mean 0 | mean 1 | ...   a leaf's statistics; buffers as at the step's start;
//                                         small ones on a GPU at once, leaves side by side
//     dropout     draw 0 | draw 1 | ...   from the generator of the leaf
//     products    all at once             or by leaf where that has other bits: compared
//                                         when an operator of such shapes is first met
//
// What must never happen: a model draws from the program's own generator within a scope. Operators
// that are unknown here do, and LeafPasses detects that the generator has moved.
//
// Tested: train/leaves/leaves_test.cpp, e2e/device_test.cpp (on threads of autograd, dropout and
// batch norm of GPUs).

#include "leaves/leaf_norm.hpp"
#include "leaves/leaf_scope.hpp"

#include <mutex>
#include <tuple>
#include <utility>

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

namespace lockstep {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;
using FourTensors = std::tuple<Tensor, Tensor, Tensor, Tensor>;

bool is_cut(const Tensor& rows) {
    const LeafScope& scope = LeafScope::current();
    return rows.device() == scope.device() && scope.cut().divides(rows);
}

// During its lifetime, calls of a kernel here reach LibTorch's own kernels.
class OwnKernels {
    c10::impl::ExcludeDispatchKeyGuard excluded_{c10::DispatchKeySet(leaf_key) |
                                                 c10::autocast_dispatch_keyset};
};

NormOutput leaf_norm(const NormCall& call) {
    const OwnKernels own;
    return is_cut(call.samples) ? normalize_leaves(call, LeafScope::current())
                                : call.kind->forward(call);
}

Tensor given(const OptionalTensor& tensor) {
    return tensor.value_or(Tensor());
}

ThreeTensors leaf_native_norm(const Tensor& input,
                              const OptionalTensor& weight,
                              const OptionalTensor& bias,
                              const OptionalTensor& mean,
                              const OptionalTensor& variance,
                              bool trains,
                              double momentum,
                              double epsilon) {
    const auto [output, saved] = leaf_norm({&native_norm,
                                            input,
                                            given(weight),
                                            given(bias),
                                            given(mean),
                                            given(variance),
                                            trains,
                                            momentum,
                                            epsilon});
    return {output, saved.mean, saved.spread};
}

FourTensors leaf_cudnn_norm(const Tensor& input,
                            const Tensor& weight,
                            const OptionalTensor& bias,
                            const OptionalTensor& mean,
                            const OptionalTensor& variance,
                            bool trains,
                            double momentum,
                            double epsilon) {
    const auto [output, saved] = leaf_norm({&cudnn_norm,
                                            input,
                                            weight,
                                            given(bias),
                                            given(mean),
                                            given(variance),
                                            trains,
                                            momentum,
                                            epsilon});
    return {output, saved.mean, saved.spread, saved.reserve};
}

template <auto compute>
struct FoundOr;

// The graph's result in place of that of `compute`, which is one of LibTorch's.
template <class... Inputs, ThreeTensors (*compute)(Inputs...)>
struct FoundOr<compute> {
    static ThreeTensors backward(Inputs... inputs) {
        const OwnKernels own;
        std::optional<Tensor>& found = LeafScope::current().norm_input_gradient;
        if (!found) return compute(inputs...);
        return {*std::exchange(found, std::nullopt), Tensor(), Tensor()};
    }
};

// Of all `rows` at once, or of each leaf's where that has other bits.
template <class Compute>
Tensor by_samples(std::vector<std::int64_t> key,
                  const std::vector<Tensor>& rows,
                  Compute&& compute) {
    LeafScope& scope = LeafScope::current();
    const auto by_leaf = [&] {
        std::vector<Tensor> parts;
        for (std::int64_t leaf = 0; leaf < scope.cut().leaves; ++leaf) {
            std::vector<Tensor> own;
            for (const Tensor& tensor : rows) own.push_back(scope.cut().part(tensor, leaf));
            parts.push_back(compute(own));
        }
        return LeafCut::whole(parts);
    };
    const auto is_same = [&] { return LeafScope::has_same_bits(compute(rows), by_leaf()); };
    return scope.decide(std::move(key), is_same) ? compute(rows) : by_leaf();
}

Tensor leaf_convolution(const Tensor& input,
                        const Tensor& weight,
                        const OptionalTensor& bias,
                        at::IntArrayRef stride,
                        at::IntArrayRef padding,
                        at::IntArrayRef dilation,
                        bool is_transposed,
                        at::IntArrayRef output_padding,
                        std::int64_t groups) {
    const auto compute = [&](const std::vector<Tensor>& in) {
        return at::convolution(
            in[0], weight, bias, stride, padding, dilation, is_transposed, output_padding, groups);
    };
    const OwnKernels own;
    if (!is_cut(input)) return compute({input});
    const std::int64_t kind[] = {groups, is_transposed, bias && bias->defined()};
    return by_samples(key_of(LeafOperator::convolution,
                             {input, weight},
                             {stride, padding, dilation, output_padding, kind}),
                      {input},
                      compute);
}

ThreeTensors leaf_convolution_backward(const Tensor& gradient,
                                       const Tensor& input,
                                       const Tensor& weight,
                                       at::OptionalIntArrayRef bias_sizes,
                                       at::IntArrayRef stride,
                                       at::IntArrayRef padding,
                                       at::IntArrayRef dilation,
                                       bool is_transposed,
                                       at::IntArrayRef output_padding,
                                       std::int64_t groups,
                                       std::array<bool, 3> wanted) {
    const auto compute = [&](const Tensor& gradients, const Tensor& inputs) {
        return at::convolution_backward(gradients,
                                        inputs,
                                        weight,
                                        bias_sizes,
                                        stride,
                                        padding,
                                        dilation,
                                        is_transposed,
                                        output_padding,
                                        groups,
                                        wanted);
    };
    const OwnKernels own;
    const bool is_input_only = wanted[0] && !wanted[1] && !wanted[2];
    if (!is_input_only || !is_cut(input)) return compute(gradient, input);
    const std::int64_t kind[] = {groups, is_transposed};
    return {by_samples(key_of(LeafOperator::convolution_backward,
                              {gradient, input, weight},
                              {stride, padding, dilation, output_padding, kind}),
                       {gradient, input},
                       [&](const std::vector<Tensor>& rows) {
                           return std::get<0>(compute(rows[0], rows[1]));
                       }),
            Tensor(),
            Tensor()};
}

Tensor leaf_addmm(const Tensor& bias,
                  const Tensor& first,
                  const Tensor& second,
                  const at::Scalar& beta,
                  const at::Scalar& alpha) {
    const auto compute = [&](const std::vector<Tensor>& rows) {
        return at::addmm(bias, rows[0], second, beta, alpha);
    };
    const OwnKernels own;
    if (bias.dim() != 1 || !is_cut(first)) return compute({first});
    return by_samples(key_of(LeafOperator::addmm, {bias, first, second}), {first}, compute);
}

Tensor leaf_mm(const Tensor& first, const Tensor& second) {
    const auto compute = [&](const std::vector<Tensor>& rows) { return at::mm(rows[0], second); };
    const OwnKernels own;
    if (!is_cut(first)) return compute({first});
    return by_samples(key_of(LeafOperator::mm, {first, second}), {first}, compute);
}

// `draw` fills a leaf's part from its generator.
template <class Draw>
Tensor& draw_by_leaf(Tensor& self, const std::optional<at::Generator>& given, Draw&& draw) {
    const OwnKernels own;
    if (given || !is_cut(self)) {
        draw(self, given);
        return self;
    }
    for (std::int64_t leaf = 0; leaf < LeafScope::current().cut().leaves; ++leaf)
        draw(LeafScope::current().cut().part(self, leaf), LeafScope::current().generator(leaf));
    return self;
}

Tensor& leaf_bernoulli(Tensor& self, double p, std::optional<at::Generator> given) {
    return draw_by_leaf(self, given, [p](const Tensor& part, const auto& generator) {
        part.bernoulli_(p, generator);
    });
}

Tensor& leaf_uniform(Tensor& self, double from, double to, std::optional<at::Generator> given) {
    return draw_by_leaf(self, given, [=](const Tensor& part, const auto& generator) {
        part.uniform_(from, to, generator);
    });
}

Tensor& leaf_normal(Tensor& self, double mean, double std, std::optional<at::Generator> given) {
    return draw_by_leaf(self, given, [=](const Tensor& part, const auto& generator) {
        part.normal_(mean, std, generator);
    });
}

// While it lives, what draws from the device's default generator draws the leaf's numbers.
class LeafDraws {
  public:
    explicit LeafDraws(at::Generator& leaf)
        : leaf_(leaf), shared_(at::globalContext().defaultGenerator(leaf.device())) {
        const std::scoped_lock lock(shared_.mutex());
        if (shared_.device().is_cpu()) {
            kept_ = shared_.get_state();
            shared_.set_state(leaf_.get_state());
        } else {  // a pass that is recorded keeps the leaf's generator
            kept_generator_ = shared_.graphsafe_get_state();
            shared_.graphsafe_set_state(leaf_);
        }
    }
    ~LeafDraws() {
        const std::scoped_lock lock(shared_.mutex());
        if (shared_.device().is_cpu()) {
            leaf_.set_state(shared_.get_state());
            shared_.set_state(kept_);
        } else {
            shared_.graphsafe_set_state(kept_generator_);
        }
    }
    LeafDraws& operator=(LeafDraws&&) = delete;

  private:
    at::Generator& leaf_;
    at::Generator shared_, kept_generator_;
    Tensor kept_;
};

std::tuple<Tensor, Tensor> leaf_dropout(const Tensor& input, double p, std::optional<bool> trains) {
    const OwnKernels own;
    if (!is_cut(input)) return at::native_dropout(input, p, trains);
    std::vector<Tensor> outputs, masks;
    for (std::int64_t leaf = 0; leaf < LeafScope::current().cut().leaves; ++leaf) {
        const LeafDraws draws(LeafScope::current().generator(leaf));
        auto [output, mask] =
            at::native_dropout(LeafScope::current().cut().part(input, leaf), p, trains);
        outputs.push_back(output);
        masks.push_back(mask);
    }
    return {LeafCut::whole(outputs), LeafCut::whole(masks)};
}

at::Scalar leaf_item(const Tensor& tensor) {
    const OwnKernels own;
    LeafScope::current().note_read(tensor);
    return at::_local_scalar_dense(tensor);
}

bool leaf_equal(const Tensor& one, const Tensor& other) {
    const OwnKernels own;
    LeafScope::current().note_read(one);
    LeafScope::current().note_read(other);
    return at::equal(one, other);
}

}  // namespace

void register_leaf_kernels() {
    static torch::Library others(torch::Library::IMPL, "_", leaf_key, __FILE__, __LINE__);
    others.fallback(torch::CppFunction::makeFallthrough());
    static torch::Library kernels(torch::Library::IMPL, "aten", leaf_key, __FILE__, __LINE__);
    kernels.impl("addmm", leaf_addmm);
    kernels.impl("mm", leaf_mm);
    kernels.impl("convolution", leaf_convolution);
    kernels.impl("convolution_backward", leaf_convolution_backward);
    kernels.impl("native_batch_norm", leaf_native_norm);
    kernels.impl("native_batch_norm_backward", FoundOr<at::native_batch_norm_backward>::backward);
    kernels.impl("cudnn_batch_norm", leaf_cudnn_norm);
    kernels.impl("cudnn_batch_norm_backward", FoundOr<at::cudnn_batch_norm_backward>::backward);
    kernels.impl("bernoulli_.float", leaf_bernoulli);
    kernels.impl("uniform_", leaf_uniform);
    kernels.impl("normal_", leaf_normal);
    kernels.impl("native_dropout", leaf_dropout);
    kernels.impl("_local_scalar_dense", leaf_item);
    kernels.impl("equal", leaf_equal);
}

}  // namespace lockstep
