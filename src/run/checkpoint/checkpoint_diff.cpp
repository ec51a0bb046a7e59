// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/checkpoint.hpp"
#include "lockstep/run/checkpoint_manifest.hpp"
#include "lockstep/run/tensor_files.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace lockstep {
namespace {

template <class Value>
void compare_as(const std::vector<std::byte>& a,
                const std::vector<std::byte>& b,
                TensorDifference& found) {
    for (std::size_t at = 0; at < a.size(); at += sizeof(Value)) {
        if (std::memcmp(&a[at], &b[at], sizeof(Value)) == 0) continue;
        Value left, right;
        std::memcpy(&left, &a[at], sizeof left);
        std::memcpy(&right, &b[at], sizeof right);
        ++found.differing;
        const double apart = std::abs(static_cast<double>(left) - static_cast<double>(right));
        found.largest = std::max(
            found.largest, std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart);
    }
}

TensorDifference difference(const ExportedTensor& a, const ExportedTensor& b) {
    TensorDifference found{.name = a.name, .first = a.shape, .second = b.shape};
    if (found.first != found.second) return found;
    const std::vector<std::byte> left = a.values(), right = b.values();
    a.element == ExportedElement::i64 ? compare_as<std::int64_t>(left, right, found)
                                      : compare_as<float>(left, right, found);
    return found;
}

}  // namespace

CheckpointDifference compare_checkpoints(
    const fs::path& first,
    const fs::path& second,
    const std::function<void(std::uint64_t, std::uint64_t)>& has_read) {
    const CheckpointManifest left = read_checkpoint_manifest(first),
                             right = read_checkpoint_manifest(second);
    const auto ours = exported_tensors(first, left, ExportedTensors::all),
               theirs = exported_tensors(second, right, ExportedTensors::all);
    std::map<std::string, const ExportedTensor*> rest;
    std::uint64_t total = 0, done = 0;
    for (const ExportedTensor& tensor : theirs) rest[tensor.name] = &tensor;
    for (const ExportedTensor& tensor : ours) total += tensor.bytes();
    CheckpointDifference found{.tensors = ours.size(), .different = {}};
    for (const ExportedTensor& tensor : ours) {
        const auto other = rest.find(tensor.name);
        const bool is_alone = other == rest.end();
        TensorDifference one = is_alone
                                   ? TensorDifference{.name = tensor.name, .first = tensor.shape}
                                   : difference(tensor, *other->second);
        if (!is_alone) rest.erase(other);
        done += tensor.bytes();
        if (has_read) has_read(done, total);
        if (one.differing > 0 || one.first != one.second) found.different.push_back(std::move(one));
    }
    for (const auto& [name, tensor] : rest)
        found.different.push_back({.name = name, .second = tensor->shape});
    found.tensors += rest.size();
    return found;
}

}  // namespace lockstep
