// SPDX-License-Identifier: Apache-2.0
#include "leaves/leaf_scope.hpp"

#include "lockstep/core/error.hpp"

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

// In the same layout, too: kernels choose by strides.
bool LeafScope::has_same_bits(const Tensor& one, const Tensor& other) {
    if (one.strides() != other.strides() || !one.is_non_overlapping_and_dense()) return false;
    const Tensor a = one.cpu(), b = other.cpu();
    return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

const Tensor* LeafBuffers::find(const Tensor& buffer, std::int64_t leaf) const {
    const auto found = values_.find(buffer.data_ptr());
    if (found == values_.end()) return nullptr;
    const Tensor& kept = found->second[static_cast<std::size_t>(leaf)];
    return kept.defined() ? &kept : nullptr;
}

void LeafBuffers::keep(const Tensor& buffer, std::int64_t leaf, std::int64_t leaves) {
    std::vector<Tensor>& kept = values_[buffer.data_ptr()];
    kept.resize(static_cast<std::size_t>(leaves));
    kept[static_cast<std::size_t>(leaf)] = buffer.clone();
}

}  // namespace lockstep
