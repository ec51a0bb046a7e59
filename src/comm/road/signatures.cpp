// SPDX-License-Identifier: Apache-2.0
#include "road/signatures.hpp"

#include "lockstep/core/hash.hpp"

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Groups ranks by their bytes, the largest group first; of equal ones the group with the lowest
/// rank is first.
std::vector<std::vector<int>> grouped_by(const std::vector<std::string>& given) {
    std::map<std::string, std::vector<int>> groups;
    for (std::size_t rank = 0; rank < given.size(); ++rank)
        groups[given[rank]].push_back(static_cast<int>(rank));
    std::vector<std::vector<int>> sorted;
    for (auto& [signature, ranks] : groups) sorted.push_back(std::move(ranks));
    std::ranges::sort(sorted, {}, [](const auto& ranks) {
        return std::pair(-static_cast<int>(ranks.size()), ranks.front());
    });
    return sorted;
}

}  // namespace

LayoutSignature signature_of(const FlatLayout& layout, const TreePlan& plan) {
    std::vector<std::uint64_t> facts = {layout.size(),
                                        layout.state().begin,
                                        layout.state().end,
                                        static_cast<std::uint64_t>(plan.virtual_ranks()),
                                        static_cast<std::uint64_t>(plan.summation())};
    for (std::size_t b = 0; b < layout.bucket_count(); ++b)
        facts.insert(facts.end(), {layout.bucket(b).begin, layout.bucket(b).end});
    for (std::size_t t = 0; t < layout.tensor_count(); ++t)
        facts.insert(facts.end(), {layout.tensor(t).begin, layout.tensor(t).end});
    return {hash64(bytes_of(std::span<const std::uint64_t>(facts))),
            fmt::format("{} tensors in {} buckets, {} floats, V = {}",
                        layout.tensor_count(),
                        layout.bucket_count(),
                        layout.size(),
                        plan.virtual_ranks())};
}

std::optional<Error> difference_of(const std::vector<std::string>& given,
                                   const char* code,
                                   const std::string& what) {
    const auto groups = grouped_by(given);
    if (groups.size() == 1) return {};
    std::vector<int> others;
    for (auto group = groups.begin() + 1; group != groups.end(); ++group)
        others.insert(others.end(), group->begin(), group->end());
    std::ranges::sort(others);
    return Error(code,
                 fmt::format("{} {} from {}: on rank 0, {}",
                             ranks_text(others),
                             others.size() == 1 ? "differs" : "differ",
                             ranks_text(groups.front()),
                             what),
                 "every rank must do the same, in the same order and with the same sizes",
                 "see that all ranks run the same program with the same settings");
}

}  // namespace lockstep
