// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/flat_layout.hpp"

#include "lockstep/comm/exchange.hpp"
#include "lockstep/core/hash.hpp"

#include "road/signatures.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

class HostMemory : public FlatMemory {
  public:
    void clear(float* at, std::size_t count) override { std::memset(at, 0, count * sizeof(float)); }
    void add(float* into, const float* from, std::size_t count) override {
        add_into(into, from, count);
    }
    void copy(float* to, const float* from, std::size_t count) override {
        std::memcpy(to, from, count * sizeof(float));
    }
    void wait() override {}
};

constexpr std::size_t hash_digits = 16;  // of a signature, before its text

}  // namespace

FloatRange part_of(FloatRange whole, int index, int of) {
    expect(index >= 0 && index < of, "one of the parts");
    const std::size_t lines = whole.size() / line_floats;
    const auto boundary = [&](int i) {
        return whole.begin +
               lines * static_cast<std::size_t>(i) / static_cast<std::size_t>(of) * line_floats;
    };
    return {boundary(index), index + 1 == of ? whole.end : boundary(index + 1)};
}

FlatLayout::FlatLayout(std::span<const std::size_t> counts,
                       std::size_t state_count,
                       BucketLimits limits,
                       std::span<const std::size_t> order)
    : tensors_(counts.size()), bucket_of_(counts.size()) {
    std::vector<std::size_t> reversed(counts.size());
    std::iota(reversed.rbegin(), reversed.rend(), std::size_t{0});
    if (order.empty()) order = reversed;
    expect(std::ranges::is_permutation(order, reversed), "every tensor is in the order once");
    for (const std::size_t index : order) append(index, counts[index], limits);
    state_ = {size_, size_ + state_count};
    buckets_.push_back({size_, size_ + rounded_to_lines(state_count)});
    tensors_in_.push_back(0);
    size_ = buckets_.back().end;
}

void FlatLayout::append(std::size_t index, std::size_t count, BucketLimits limits) {
    const FloatRange lines = {size_, size_ + rounded_to_lines(count)};
    const std::size_t limit_bytes = buckets_.size() <= 1 ? limits.first_bytes : limits.bytes;
    const bool fits =
        !buckets_.empty() && (lines.end - buckets_.back().begin) * sizeof(float) <= limit_bytes;
    if (!fits) {
        buckets_.push_back({lines.begin, lines.begin});
        tensors_in_.push_back(0);
    }
    tensors_[index] = {lines.begin, lines.begin + count};
    bucket_of_[index] = buckets_.size() - 1;
    buckets_.back().end = size_ = lines.end;
    ++tensors_in_.back();
}

FlatMemory& host_memory() {
    static HostMemory memory;
    return memory;
}

FlatMemory& Exchange::memory() {
    return host_memory();
}

std::string layout_signature(const FlatLayout& layout, const TreePlan& plan) {
    std::vector<std::uint64_t> facts = {layout.size(),
                                        layout.state().begin,
                                        layout.state().end,
                                        static_cast<std::uint64_t>(plan.virtual_ranks()),
                                        static_cast<std::uint64_t>(plan.summation())};
    for (std::size_t b = 0; b < layout.bucket_count(); ++b)
        facts.insert(facts.end(), {layout.bucket(b).begin, layout.bucket(b).end});
    for (std::size_t t = 0; t < layout.tensor_count(); ++t)
        facts.insert(facts.end(), {layout.tensor(t).begin, layout.tensor(t).end});
    return fmt::format("{}{} tensors in {} buckets, {} floats, V = {}",
                       hex64(hash64(bytes_of(std::span<const std::uint64_t>(facts)))),
                       layout.tensor_count(),
                       layout.bucket_count(),
                       layout.size(),
                       plan.virtual_ranks());
}

std::optional<Error> layout_difference(const std::vector<std::string>& signatures) {
    if (std::ranges::adjacent_find(signatures, std::ranges::not_equal_to{}) == signatures.end())
        return {};
    std::map<std::string_view, int> votes;
    for (const std::string& each : signatures) ++votes[each];
    // Of equal groups the one with the lowest rank.
    const std::string& usual = *std::ranges::max_element(
        signatures, {}, [&](const std::string& each) { return votes[each]; });
    std::vector<int> same, others;
    for (std::size_t rank = 0; rank < signatures.size(); ++rank)
        (signatures[rank] == usual ? same : others).push_back(static_cast<int>(rank));
    return Error("E662",
                 fmt::format("{} {} from {}: on rank 0, {}",
                             ranks_text(others),
                             others.size() == 1 ? "differs" : "differ",
                             ranks_text(same),
                             signatures.front().substr(hash_digits)),
                 "every rank must do the same, in the same order and with the same sizes",
                 "see that all ranks run the same program with the same settings");
}

}  // namespace lockstep
