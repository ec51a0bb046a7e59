// SPDX-License-Identifier: Apache-2.0

#include "lockstep/data/dataset_index.hpp"

#include "chunk_filters.hpp"
#include "unpacking.hpp"
#include "widening.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {
namespace {

constexpr std::size_t most_filters = 8;

struct KnownFilter {
    FilterKind kind;
    std::string_view name;
    bool compresses;
};
constexpr auto known_filters = std::to_array<KnownFilter>({
    {FilterKind::deflate, "deflate", true},
    {FilterKind::shuffle, "shuffle", false},
    {FilterKind::fletcher32, "fletcher32", false},
    {FilterKind::lzf, "lzf", true},
    {FilterKind::blosc, "blosc", true},
    {FilterKind::lz4, "lz4", true},
    {FilterKind::zstd, "zstd", true},
    {FilterKind::widening, "widening", false},
    {FilterKind::unpacking, "unpacking", false},
});

const KnownFilter* find_filter(std::uint64_t kind) {
    const auto* found = std::ranges::find_if(known_filters, [&](const KnownFilter& known) {
        return static_cast<std::uint64_t>(known.kind) == kind;
    });
    return found == known_filters.end() ? nullptr : found;
}

}  // namespace

bool is_known_filter(std::uint64_t kind) {
    if (kind == static_cast<std::uint64_t>(FilterKind::blosc)) return reads_blosc();
    return !is_own_filter(kind) && find_filter(kind) != nullptr;
}

bool is_own_filter(std::uint64_t kind) {
    return kind == static_cast<std::uint64_t>(FilterKind::widening) ||
           kind == static_cast<std::uint64_t>(FilterKind::unpacking);
}

std::string filter_text(const FilterChain& chain) {
    std::string text;
    for (const Filter& filter : chain) {
        const KnownFilter* known = find_filter(static_cast<std::uint64_t>(filter.kind));
        text += fmt::format("{}{}", text.empty() ? "" : "+", known ? known->name : "?");
    }
    return text.empty() ? "none" : text;
}

std::string filter_fault(const FilterChain& chain) {
    if (chain.size() > most_filters)
        return fmt::format("it has {} filters; {} are supported", chain.size(), most_filters);
    int compressing = 0;
    for (const Filter& filter : chain) {
        const KnownFilter* known = find_filter(static_cast<std::uint64_t>(filter.kind));
        if (!known) return fmt::format("it has a filter {}", static_cast<int>(filter.kind));
        if (known->compresses) ++compressing;
        if (filter.kind == FilterKind::shuffle && filter.element == 0)
            return "its shuffle filter does not say how large an element is";
        if (filter.kind == FilterKind::widening &&
            (&filter != &chain.front() || !Widening(filter.element).is_known()))
            return "its elements change in an unknown way";
        if (filter.kind == FilterKind::unpacking &&
            (&filter != &chain.front() || !Unpacking::of(filter)))
            return "its numbers stand for others in an unknown way";
    }
    return compressing > 1 ? "it is compressed more than once" : "";
}

}  // namespace lockstep
