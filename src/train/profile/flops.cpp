// SPDX-License-Identifier: Apache-2.0
// Arguments have the places that ATen/native/native_functions.yaml gives them.
#include "profile/flops.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

namespace lockstep {
namespace {

std::uint64_t product(at::IntArrayRef sizes) {
    std::uint64_t all = 1;
    for (const std::int64_t size : sizes) all *= static_cast<std::uint64_t>(size);
    return all;
}

at::IntArrayRef sizes_of(OperatorInputs inputs, std::size_t place) {
    return inputs[place].toTensor().sizes();
}

// [..., n, k] by [..., k, m].
template <std::size_t first>
std::uint64_t matrix_product(OperatorInputs inputs) {
    return 2 * product(sizes_of(inputs, first)) *
           static_cast<std::uint64_t>(sizes_of(inputs, first + 1).back());
}

// Weights are [out, in / groups, ...]. Each element that a convolution gives is a sum over one of
// their rows; of a transposed one each that it takes goes into as many.
std::uint64_t kernel_products(at::IntArrayRef elements, at::IntArrayRef weight) {
    return 2 * product(elements) * product(weight.slice(1));
}

// A list of one number is meant for all dimensions.
std::int64_t at_dimension(const std::vector<std::int64_t>& list, std::size_t dimension) {
    return list.size() == 1 ? list[0] : list[dimension];
}

std::uint64_t convolution(OperatorInputs inputs) {
    const at::IntArrayRef input = sizes_of(inputs, 0), weight = sizes_of(inputs, 1);
    if (inputs[6].toBool()) return kernel_products(input, weight);
    const auto stride = inputs[3].toIntVector(), padding = inputs[4].toIntVector(),
               dilation = inputs[5].toIntVector();
    std::vector<std::int64_t> output{input[0], weight[0]};
    for (std::size_t d = 0; d + 2 < weight.size(); ++d) {
        const std::int64_t kernel = at_dimension(dilation, d) * (weight[d + 2] - 1) + 1;
        const std::int64_t padded = input[d + 2] + 2 * at_dimension(padding, d);
        output.push_back((padded - kernel) / at_dimension(stride, d) + 1);
    }
    return kernel_products(output, weight);
}

// The gradients of inputs and of weights, where they are asked for, take as much as forward each.
std::uint64_t convolution_backward(OperatorInputs inputs) {
    const std::size_t elements = inputs[7].toBool() ? 1 : 0;
    const auto wanted = inputs[10].toBoolList();
    return (std::uint64_t{wanted.get(0)} + std::uint64_t{wanted.get(1)}) *
           kernel_products(sizes_of(inputs, elements), sizes_of(inputs, 2));
}

// Of queries [B, H, L, E], keys [B, H, S, E] and values [B, H, S, F]: products that are E wide, and
// those that are F wide. What a mask hides counts, too.
std::uint64_t attention_products(OperatorInputs inputs,
                                 std::size_t queries,
                                 std::uint64_t of_keys,
                                 std::uint64_t of_values) {
    const at::IntArrayRef q = sizes_of(inputs, queries), k = sizes_of(inputs, queries + 1),
                          v = sizes_of(inputs, queries + 2);
    const std::uint64_t pairs = product(q.slice(0, 3)) * static_cast<std::uint64_t>(k[2]);
    return 2 * pairs *
           (of_keys * static_cast<std::uint64_t>(q[3]) +
            of_values * static_cast<std::uint64_t>(v[3]));
}

std::uint64_t attention(OperatorInputs inputs) {
    return attention_products(inputs, 0, 1, 1);
}

// The scores once more, and the gradients of scores, queries, keys and values.
std::uint64_t attention_backward(OperatorInputs inputs) {
    return attention_products(inputs, 1, 3, 2);
}

constexpr std::pair<std::string_view, FlopFormula> formulas[] = {
    {"aten::mm", matrix_product<0>},
    {"aten::bmm", matrix_product<0>},
    {"aten::addmm", matrix_product<1>},
    {"aten::baddbmm", matrix_product<1>},
    {"aten::convolution", convolution},
    {"aten::_convolution", convolution},
    {"aten::convolution_backward", convolution_backward},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
    {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward}};

}  // namespace

FlopFormula find_flop_formula(std::string_view name) {
    const auto* found =
        std::ranges::find(formulas, name, &std::pair<std::string_view, FlopFormula>::first);
    return found == std::end(formulas) ? nullptr : found->second;
}

}  // namespace lockstep
