// SPDX-License-Identifier: Apache-2.0
// Kernels in place of LibTorch's own, below autograd, which does not notice. Outside a LeafScope
// they are LibTorch's own.
//
//     samples     leaf 0 | leaf 1 | ...   one call of the library for each leaf's rows
//     batch norm  mean 0 | mean 1 | ...   a leaf's statistics; buffers as at the step's start
//     dropout     draw 0 | draw 1 | ...   from the generator of the leaf
//     products    all at once             or by leaf where that has other bits: compared
//                                         when an operator of such shapes is first met
//
// What must never happen: that a model draws from the program's own generator within a scope.
// Operators that are not known here do, and LeafPasses sees that the generator has moved.
//
// Tested: train/leaves/leaves_test.cpp.

#include "leaves/leaf_scope.hpp"

#include "lockstep/core/error.hpp"

#include <cstring>
#include <initializer_list>
#include <tuple>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bernoulli_native.h>
#include <ATen/ops/convolution_backward_native.h>
#include <ATen/ops/convolution_native.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/native_batch_norm_backward_native.h>
#include <ATen/ops/native_batch_norm_native.h>
#include <ATen/ops/normal_native.h>
#include <ATen/ops/uniform_native.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

namespace lockstep {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;
using ThreeTensors = std::tuple<Tensor, Tensor, Tensor>;

thread_local LeafScope* current_scope = nullptr;

bool is_cut(const LeafScope* scope, const Tensor& rows) {
    return scope != nullptr && scope->cut().divides(rows);
}

// As the leaf left it, or as the step found it.
void restore(const LeafScope& scope, const Tensor& buffer, const Tensor& first, std::int64_t leaf) {
    const Tensor* const left = scope.buffer(buffer, leaf);
    buffer.copy_(left != nullptr ? *left : first);
}

ThreeTensors leaf_batch_norm(const Tensor& input,
                             const OptionalTensor& weight,
                             const OptionalTensor& bias,
                             const OptionalTensor& mean,
                             const OptionalTensor& variance,
                             bool trains,
                             double momentum,
                             double epsilon) {
    LeafScope* const scope = current_scope;
    if (!is_cut(scope, input))
        return at::native::batch_norm_cpu(
            input, weight, bias, mean, variance, trains, momentum, epsilon);
    const bool has_buffers = trains && mean && mean->defined();
    const Tensor first_mean = has_buffers ? mean->clone() : Tensor();
    const Tensor first_variance = has_buffers ? variance->clone() : Tensor();
    std::vector<Tensor> outputs, means, deviations;
    for (std::int64_t leaf = 0; leaf < scope->cut().leaves; ++leaf) {
        if (has_buffers) {
            restore(*scope, *mean, first_mean, leaf);
            restore(*scope, *variance, first_variance, leaf);
        }
        auto [output, saved_mean, saved_deviation] =
            at::native::batch_norm_cpu(scope->cut().part(input, leaf),
                                       weight,
                                       bias,
                                       mean,
                                       variance,
                                       trains,
                                       momentum,
                                       epsilon);
        outputs.push_back(output);
        means.push_back(saved_mean);
        deviations.push_back(saved_deviation);
        if (!has_buffers) continue;
        scope->keep_buffer(*mean, leaf);
        scope->keep_buffer(*variance, leaf);
    }
    return {LeafCut::whole(outputs), at::cat(means), at::cat(deviations)};
}

ThreeTensors leaf_batch_norm_backward(const Tensor& gradient,
                                      const Tensor& input,
                                      const OptionalTensor& weight,
                                      const OptionalTensor& mean,
                                      const OptionalTensor& variance,
                                      const OptionalTensor& saved_mean,
                                      const OptionalTensor& saved_deviation,
                                      bool trains,
                                      double epsilon,
                                      std::array<bool, 3> wanted) {
    LeafScope* const scope = current_scope;
    if (scope == nullptr || !scope->norm_input_gradient)
        return at::native::batch_norm_backward_cpu(gradient,
                                                   input,
                                                   weight,
                                                   mean,
                                                   variance,
                                                   saved_mean,
                                                   saved_deviation,
                                                   trains,
                                                   epsilon,
                                                   wanted);
    ThreeTensors result{*scope->norm_input_gradient, Tensor(), Tensor()};
    scope->norm_input_gradient.reset();
    return result;
}

enum class Operator : std::int64_t { convolution, convolution_backward, addmm, mm };

void add_layout(std::vector<std::int64_t>& key, const Tensor& tensor) {
    key.push_back(tensor.dim());
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
    key.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
}

std::vector<std::int64_t> key_of(Operator which,
                                 const std::vector<Tensor>& tensors,
                                 std::initializer_list<at::IntArrayRef> numbers = {}) {
    std::vector<std::int64_t> key = {static_cast<std::int64_t>(which)};
    for (const Tensor& tensor : tensors) add_layout(key, tensor);
    for (const at::IntArrayRef part : numbers) key.insert(key.end(), part.begin(), part.end());
    return key;
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
    const auto compute = [&](const std::vector<Tensor>& rows) {
        return at::native::convolution(rows[0],
                                       weight,
                                       bias,
                                       stride,
                                       padding,
                                       dilation,
                                       is_transposed,
                                       output_padding,
                                       groups);
    };
    if (!is_cut(current_scope, input)) return compute({input});
    const std::int64_t kind[] = {groups, is_transposed, bias && bias->defined()};
    return current_scope->compute(key_of(Operator::convolution,
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
        return at::native::convolution_backward(gradients,
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
    const bool is_input_only = wanted[0] && !wanted[1] && !wanted[2];
    if (!is_input_only || !is_cut(current_scope, input)) return compute(gradient, input);
    const std::int64_t kind[] = {groups, is_transposed};
    return {current_scope->compute(key_of(Operator::convolution_backward,
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
        return at::cpu::addmm(bias, rows[0], second, beta, alpha);
    };
    if (bias.dim() != 1 || !is_cut(current_scope, first)) return compute({first});
    return current_scope->compute(key_of(Operator::addmm, {bias, first, second}), {first}, compute);
}

Tensor leaf_mm(const Tensor& first, const Tensor& second) {
    const auto compute = [&](const std::vector<Tensor>& rows) {
        return at::cpu::mm(rows[0], second);
    };
    if (!is_cut(current_scope, first)) return compute({first});
    return current_scope->compute(key_of(Operator::mm, {first, second}), {first}, compute);
}

// `draw` fills a leaf's part from its generator.
template <class Draw>
Tensor& draw_by_leaf(Tensor& self, const std::optional<at::Generator>& given, Draw&& draw) {
    LeafScope* const scope = current_scope;
    if (scope == nullptr || given || !scope->cut().divides(self)) return draw(self, given);
    for (std::int64_t leaf = 0; leaf < scope->cut().leaves; ++leaf) {
        Tensor part = scope->cut().part(self, leaf);
        draw(part, scope->generator(leaf));
    }
    return self;
}

Tensor& leaf_bernoulli(Tensor& self, double p, std::optional<at::Generator> given) {
    return draw_by_leaf(self, given, [p](Tensor& part, const auto& generator) -> Tensor& {
        return at::native::bernoulli_(part, p, generator);
    });
}

Tensor& leaf_uniform(Tensor& self, double from, double to, std::optional<at::Generator> given) {
    return draw_by_leaf(self, given, [=](Tensor& part, const auto& generator) -> Tensor& {
        return at::native::uniform_(part, from, to, generator);
    });
}

Tensor& leaf_normal(Tensor& self, double mean, double std, std::optional<at::Generator> given) {
    return draw_by_leaf(self, given, [=](Tensor& part, const auto& generator) -> Tensor& {
        return at::native::normal_(part, mean, std, generator);
    });
}

// LibTorch warns of kernels that replace its own.
class NoWarnings : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
};

// Once, and not before it is needed: where V was said and leaves go one by one, kernels are
// LibTorch's own.
void replace_kernels() {
    static NoWarnings quiet;
    const c10::WarningUtils::WarningHandlerGuard guard(&quiet);
    static torch::Library kernels(
        torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    kernels.impl("addmm", leaf_addmm);
    kernels.impl("mm", leaf_mm);
    kernels.impl("convolution", leaf_convolution);
    kernels.impl("convolution_backward", leaf_convolution_backward);
    kernels.impl("native_batch_norm", leaf_batch_norm);
    kernels.impl("native_batch_norm_backward", leaf_batch_norm_backward);
    kernels.impl("bernoulli_.float", leaf_bernoulli);
    kernels.impl("uniform_", leaf_uniform);
    kernels.impl("normal_", leaf_normal);
}

}  // namespace

bool LeafCut::divides(const Tensor& tensor) const {
    return tensor.dim() > 0 && tensor.size(0) > 0 && tensor.size(0) % samples() == 0;
}

Tensor LeafCut::part(const Tensor& tensor, std::int64_t leaf) const {
    const std::int64_t count = tensor.size(0) / leaves;
    return tensor.narrow(0, leaf * count, count);
}

// Not at::cat(), which may lay them out otherwise: kernels choose by strides.
Tensor LeafCut::whole(const std::vector<Tensor>& parts) {
    std::vector<std::int64_t> sizes = parts.front().sizes().vec();
    const std::int64_t count = sizes[0];
    sizes[0] *= static_cast<std::int64_t>(parts.size());
    Tensor all = at::empty_strided(sizes, parts.front().strides(), parts.front().options());
    for (std::size_t i = 0; i < parts.size(); ++i)
        all.narrow(0, static_cast<std::int64_t>(i) * count, count).copy_(parts[i]);
    return all;
}

LeafScope::LeafScope(LeafCut cut, const std::vector<std::uint64_t>& seeds, LeafVerdicts& verdicts)
    : cut_(cut), verdicts_(verdicts) {
    [[maybe_unused]] static const bool replaced = (replace_kernels(), true);
    expect(current_scope == nullptr, "one scope at a time");
    for (const std::uint64_t seed : seeds)
        generators_.push_back(at::make_generator<at::CPUGeneratorImpl>(seed));
    current_scope = this;
}

LeafScope::~LeafScope() {
    current_scope = nullptr;
}

LeafScope::Pause::Pause() : paused_(std::exchange(current_scope, nullptr)) {}

LeafScope::Pause::~Pause() {
    current_scope = paused_;
}

// In the same layout, too: kernels choose by strides.
bool LeafScope::has_same_bits(const Tensor& one, const Tensor& other) {
    return one.strides() == other.strides() && one.is_non_overlapping_and_dense() &&
           std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

const Tensor* LeafScope::buffer(const Tensor& buffer, std::int64_t leaf) const {
    const auto found = buffers_.find(buffer.data_ptr());
    if (found == buffers_.end()) return nullptr;
    const Tensor& kept = found->second[static_cast<std::size_t>(leaf)];
    return kept.defined() ? &kept : nullptr;
}

void LeafScope::keep_buffer(const Tensor& buffer, std::int64_t leaf) {
    std::vector<Tensor>& kept = buffers_[buffer.data_ptr()];
    kept.resize(static_cast<std::size_t>(cut_.leaves));
    kept[static_cast<std::size_t>(leaf)] = buffer.clone();
}

}  // namespace lockstep
