// SPDX-License-Identifier: Apache-2.0
// Each leaf is normalized by a call of its own. On a GPU small leaves go in one call, side by side:
//
//     by leaf   [rows, channels] [rows, channels] ...   a call for each
//     at once   [rows, leaves * channels]               one call, and a copy there and back
//
// What must never happen: backward by leaf of what cuDNN has reserved for all leaves at once. So
// one comparison, when a call of such a shape is first met, decides on forward and backward.
//
// Tested: train/leaves/leaves_test.cpp, e2e/device_test.cpp (on GPUs).

#include "leaves/leaf_norm.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <ATen/Functions.h>

namespace lockstep {
namespace {

using at::Tensor;

bool is_small(const Tensor& samples, const LeafCut& cut) {
    constexpr std::int64_t row_unit = 16;  // rows of statistics lie side by side
    return cut.is_small(samples) && samples.size(1) % row_unit == 0;
}

// The reverse of LeafCut::side_by_side().
Tensor with_leaves_one_after_another(const Tensor& channels, const LeafCut& cut) {
    std::vector<std::int64_t> sizes = channels.sizes().vec();
    sizes[0] *= cut.leaves;
    sizes[1] /= cut.leaves;
    const Tensor all = at::empty(sizes, channels.options(), channels.suggest_memory_format());
    all.unflatten(0, {cut.leaves, -1})
        .copy_(channels.unflatten(1, {cut.leaves, -1}).transpose(0, 1));
    return all;
}

Tensor row_of(const Tensor& rows, std::int64_t leaf) {
    return rows.defined() ? rows.select(0, leaf) : rows;
}

Tensor joined(const std::vector<NormOutput>& leaves, Tensor SavedNorm::*which) {
    std::vector<Tensor> parts;
    for (const NormOutput& leaf : leaves)
        if ((leaf.saved.*which).defined()) parts.push_back(leaf.saved.*which);
    return parts.empty() ? Tensor() : at::cat(parts);
}

// `running`: with a row of statistics for each leaf, which it updates, or those of all leaves.
NormOutput normalize_by_leaf(const NormCall& running, const LeafCut& cut) {
    std::vector<NormOutput> leaves;
    std::vector<Tensor> outputs;
    for (std::int64_t leaf = 0; leaf < cut.leaves; ++leaf) {
        NormCall own = running;
        own.samples = cut.part(running.samples, leaf);
        if (running.trains) {
            own.running_mean = row_of(running.running_mean, leaf);
            own.running_variance = row_of(running.running_variance, leaf);
        }
        leaves.push_back(own.kind->forward(own));
        outputs.push_back(leaves.back().output);
    }
    return {LeafCut::whole(outputs),
            {joined(leaves, &SavedNorm::mean),
             joined(leaves, &SavedNorm::spread),
             joined(leaves, &SavedNorm::reserve)}};
}

// The call of all leaves, with their channels side by side. `running` as above.
NormCall side_by_side(const NormCall& running, LeafScope& scope) {
    const LeafCut& cut = scope.cut();
    NormCall all = running;
    all.samples = cut.side_by_side(running.samples);
    for (Tensor NormCall::*which : {&NormCall::weight, &NormCall::bias})
        if ((all.*which).defined())
            all.*which = scope.buffers.rows(all.*which, cut.leaves).view(-1);
    for (Tensor NormCall::*which : {&NormCall::running_mean, &NormCall::running_variance})
        if ((all.*which).defined()) all.*which = (all.*which).view(-1);
    return all;
}

NormOutput normalize_at_once(const NormCall& running, LeafScope& scope) {
    const NormCall all = side_by_side(running, scope);
    NormOutput made = all.kind->forward(all);
    made.output = with_leaves_one_after_another(made.output, scope.cut());
    return made;
}

LeafNormGradients gradients_by_leaf(const NormCall& call,
                                    const SavedNorm& saved,
                                    const Tensor& gradient,
                                    const LeafCut& cut) {
    LeafNormGradients all;
    std::vector<Tensor> samples;
    for (std::int64_t leaf = 0; leaf < cut.leaves; ++leaf) {
        const auto part = [&](const Tensor& values) {
            return values.defined() && values.numel() > 0 ? cut.part(values, leaf) : values;
        };
        NormCall own = call;
        own.samples = part(call.samples);
        NormGradients made = own.kind->backward(
            own, {part(saved.mean), part(saved.spread), part(saved.reserve)}, part(gradient));
        samples.push_back(std::move(made.samples));
        all.weight.push_back(std::move(made.weight));
        all.bias.push_back(std::move(made.bias));
    }
    all.samples = LeafCut::whole(samples);
    return all;
}

LeafNormGradients gradients_at_once(const NormCall& call,
                                    const SavedNorm& saved,
                                    const Tensor& gradient,
                                    LeafScope& scope) {
    const LeafCut& cut = scope.cut();
    NormCall running = call;  // which backward does not read where it trains
    running.running_mean = running.running_variance = Tensor();
    const NormCall all = side_by_side(running, scope);
    const NormGradients made = all.kind->backward(all, saved, cut.side_by_side(gradient));
    return {with_leaves_one_after_another(made.samples, cut),
            made.weight.view({cut.leaves, -1}).unbind(),
            made.bias.view({cut.leaves, -1}).unbind()};
}

bool are_same(const std::vector<Tensor>& some, const std::vector<Tensor>& others) {
    return std::ranges::equal(some, others, &LeafScope::has_same_bits);
}

// Compares on copies of the running statistics. The output is as good a gradient as any.
bool at_once_has_bits_of_leaves(const NormCall& call, LeafScope& scope) {
    const LeafCut& cut = scope.cut();
    const auto with_rows = [&] {
        NormCall running = call;
        for (Tensor NormCall::*which : {&NormCall::running_mean, &NormCall::running_variance})
            if ((call.*which).defined()) running.*which = (call.*which).repeat({cut.leaves, 1});
        return running;
    };
    const NormCall one = with_rows(), other = with_rows();
    const NormOutput all = normalize_at_once(one, scope), leaves = normalize_by_leaf(other, cut);
    if (!are_same({all.output, all.saved.mean, all.saved.spread},
                  {leaves.output, leaves.saved.mean, leaves.saved.spread}))
        return false;
    if (call.running_mean.defined() && !are_same({one.running_mean, one.running_variance},
                                                 {other.running_mean, other.running_variance}))
        return false;
    const Tensor gradient = leaves.output.sin();
    const LeafNormGradients back = gradients_at_once(call, all.saved, gradient, scope),
                            back_by_leaf = gradients_by_leaf(call, leaves.saved, gradient, cut);
    return are_same({back.samples}, {back_by_leaf.samples}) &&
           are_same(back.weight, back_by_leaf.weight) && are_same(back.bias, back_by_leaf.bias);
}

bool goes_at_once(const NormCall& call, LeafScope& scope) {
    if (!call.trains || !call.weight.defined() || !is_small(call.samples, scope.cut()))
        return false;
    const std::array kind = {call.kind->number, std::int64_t{call.running_mean.defined()}};
    return scope.decide(key_of(LeafOperator::batch_norm, {call.samples}, {kind}),
                        [&] { return at_once_has_bits_of_leaves(call, scope); });
}

NormOutput native_forward(const NormCall& call) {
    auto [output, mean, spread] = at::native_batch_norm(call.samples,
                                                        call.weight,
                                                        call.bias,
                                                        call.running_mean,
                                                        call.running_variance,
                                                        call.trains,
                                                        call.momentum,
                                                        call.epsilon);
    return {output, {mean, spread, {}}};
}

NormGradients native_backward(const NormCall& call,
                              const SavedNorm& saved,
                              const Tensor& gradient) {
    auto [samples, weight, bias] = at::native_batch_norm_backward(gradient,
                                                                  call.samples,
                                                                  call.weight,
                                                                  call.running_mean,
                                                                  call.running_variance,
                                                                  saved.mean,
                                                                  saved.spread,
                                                                  call.trains,
                                                                  call.epsilon,
                                                                  {true, true, true});
    return {samples, weight, bias};
}

NormOutput cudnn_forward(const NormCall& call) {
    auto [output, mean, spread, reserve] = at::cudnn_batch_norm(call.samples,
                                                                call.weight,
                                                                call.bias,
                                                                call.running_mean,
                                                                call.running_variance,
                                                                call.trains,
                                                                call.momentum,
                                                                call.epsilon);
    return {output, {mean, spread, reserve}};
}

NormGradients cudnn_backward(const NormCall& call, const SavedNorm& saved, const Tensor& gradient) {
    auto [samples, weight, bias] =
        at::cudnn_batch_norm_backward(call.samples,
                                      gradient.contiguous(call.samples.suggest_memory_format()),
                                      call.weight,
                                      call.running_mean,
                                      call.running_variance,
                                      saved.mean,
                                      saved.spread,
                                      call.epsilon,
                                      saved.reserve);
    return {samples, weight, bias};
}

}  // namespace

const NormKind native_norm{0, native_forward, native_backward, false};
const NormKind cudnn_norm{1, cudnn_forward, cudnn_backward, true};

NormOutput normalize_leaves(const NormCall& call, LeafScope& scope) {
    NormCall running = call;
    if (call.trains)
        for (Tensor NormCall::*which : {&NormCall::running_mean, &NormCall::running_variance})
            if ((call.*which).defined())
                running.*which = scope.buffers.rows(call.*which, scope.cut().leaves);
    return goes_at_once(call, scope) ? normalize_at_once(running, scope)
                                     : normalize_by_leaf(running, scope.cut());
}

LeafNormGradients norm_gradients_of_leaves(const NormCall& call,
                                           const SavedNorm& saved,
                                           const Tensor& gradient,
                                           const LeafCut& cut,
                                           LeafScope* scope) {
    const bool has_usual_gradient = call.kind->takes_any_gradient ||
                                    gradient.is_contiguous(call.samples.suggest_memory_format());
    return scope != nullptr && has_usual_gradient && goes_at_once(call, *scope)
               ? gradients_at_once(call, saved, gradient, *scope)
               : gradients_by_leaf(call, saved, gradient, cut);
}

}  // namespace lockstep
