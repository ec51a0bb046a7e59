// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_scope.hpp"

#include "lockstep/core/error.hpp"

#include <cmath>
#include <cstring>

#include <ATen/Context.h>
#include <ATen/Functions.h>

namespace lockstep {
namespace {

using at::Tensor;

LeafScope* current_scope = nullptr;

at::Generator new_generator(at::Device device, std::uint64_t seed) {
    at::Generator generator = at::globalContext().defaultGenerator(device).clone();
    generator.set_current_seed(seed);
    return generator;
}

}  // namespace

bool LeafCut::divides(const Tensor& tensor) const {
    return tensor.dim() > 0 && tensor.size(0) > 0 && tensor.size(0) % samples() == 0;
}

Tensor LeafCut::part(const Tensor& tensor, std::int64_t leaf) const {
    const std::int64_t count = tensor.size(0) / leaves;
    return tensor.narrow(0, leaf * count, count);
}

Tensor LeafCut::stacked(const Tensor& tensor) const {
    std::vector<std::int64_t> sizes = tensor.sizes().vec();
    sizes[0] /= leaves;
    sizes.insert(sizes.begin(), leaves);
    return tensor.view(sizes);
}

// A leaf's own call is about three kernels, of which a card starts one in 2 us. Copies of larger
// leaves take longer: a batch norm's move each number five times.
bool LeafCut::is_small(const Tensor& samples) const {
    constexpr std::int64_t fewest_leaves = 4, most_bytes_of_leaf = 1 << 20;
    return !samples.is_cpu() && leaves >= fewest_leaves &&
           static_cast<std::int64_t>(samples.nbytes()) <= leaves * most_bytes_of_leaf;
}

Tensor LeafCut::side_by_side(const Tensor& samples) const {
    std::vector<std::int64_t> sizes = samples.sizes().vec();
    sizes[0] /= leaves;
    sizes[1] *= leaves;
    const Tensor all = at::empty(sizes, samples.options(), samples.suggest_memory_format());
    all.unflatten(1, {leaves, -1}).copy_(samples.unflatten(0, {leaves, -1}).transpose(0, 1));
    return all;
}

// Not into a tensor of at::cat()'s own, which it may lay out otherwise: kernels choose by strides.
Tensor LeafCut::whole(const std::vector<Tensor>& parts) {
    std::vector<std::int64_t> sizes = parts.front().sizes().vec();
    sizes[0] *= static_cast<std::int64_t>(parts.size());
    Tensor all = at::empty_strided(sizes, parts.front().strides(), parts.front().options());
    return at::cat_out(all, parts);
}

LeafScope::LeafScope(LeafCut cut,
                     const std::vector<std::uint64_t>& seeds,
                     LeafVerdicts& verdicts,
                     at::Device device)
    : cut_(cut), device_(device), verdicts_(verdicts) {
    [[maybe_unused]] static const bool registered = (register_leaf_kernels(), true);
    expect(current_scope == nullptr, "one scope at a time");
    for (const std::uint64_t seed : seeds) generators_.push_back(new_generator(device, seed));
    current_scope = this;
}

LeafScope::~LeafScope() {
    current_scope = nullptr;
}

LeafScope& LeafScope::current() {
    return *current_scope;
}

// In the same layout, too: kernels choose by strides. Any kernel makes the same zeros and NaN.
bool LeafScope::has_same_bits(const Tensor& one, const Tensor& other) {
    const auto size = one.norm(2, at::kDouble).item<double>();
    if (!(size > 0 && std::isfinite(size))) return false;
    if (one.strides() != other.strides() || !one.is_non_overlapping_and_dense()) return false;
    const Tensor a = one.cpu(), b = other.cpu();
    return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

std::vector<std::int64_t> key_of(LeafOperator which,
                                 const std::vector<Tensor>& inputs,
                                 std::initializer_list<at::IntArrayRef> numbers) {
    std::vector<std::int64_t> key = {static_cast<std::int64_t>(which)};
    for (const Tensor& tensor : inputs) {
        key.push_back(tensor.dim());
        key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
        key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
        key.push_back(static_cast<std::int64_t>(tensor.scalar_type()));
    }
    for (const at::IntArrayRef part : numbers) key.insert(key.end(), part.begin(), part.end());
    return key;
}

Tensor LeafBuffers::find(const Tensor& buffer, std::int64_t leaf) const {
    const auto found = values_.find(buffer.data_ptr());
    return found == values_.end() ? Tensor() : found->second.select(0, leaf);
}

// Rows begin at a multiple of 64 bytes, as tensors do.
Tensor LeafBuffers::rows(const Tensor& buffer, std::int64_t leaves) {
    Tensor& rows = values_[buffer.data_ptr()];
    if (!rows.defined()) {
        constexpr std::int64_t row_unit = 16;
        const std::int64_t count = buffer.size(0);
        rows = at::empty({leaves, (count + row_unit - 1) / row_unit * row_unit}, buffer.options())
                   .narrow(1, 0, count);
        rows.copy_(buffer);
    }
    return rows;
}

}  // namespace lockstep
