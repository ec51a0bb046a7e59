// SPDX-License-Identifier: Apache-2.0
#include "other_files.hpp"

#include "lockstep/core/log.hpp"
#include "lockstep/core/numbers.hpp"

#include "hdf5/shard_probe.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep {
namespace {

// "u8 [n, 28, 28]": all but how many.
std::string kind_of(const Candidate& each) {
    std::string text = each.facts.type_text + " [n";
    for (std::size_t d = 1; d < each.facts.size.size(); ++d)
        text += fmt::format(", {}", each.facts.size[d]);
    return each.facts.size.empty() ? each.facts.type_text : text + "]";
}

const Candidate* find_named(const std::vector<Candidate>& all, const std::string& name) {
    const auto found = std::ranges::find(all, name, &Candidate::name);
    return found == all.end() ? nullptr : &*found;
}

// "" if there is none.
std::string difference_of(const std::vector<Candidate>& first, const fs::path& file) {
    const std::string name = file.string();
    std::vector<Candidate> all;
    try {
        check_is_whole_hdf5(file, 0);
        all = candidates_of(file);
    } catch (const Error& error) {
        return fmt::format("of '{}': {}: {}", name, error.code(), error.what());
    }
    for (const Candidate& each : first) {
        const Candidate* same = find_named(all, each.name);
        if (same == nullptr) return fmt::format("'{}' has no '{}'", name, each.name);
        if (kind_of(*same) != kind_of(each))
            return fmt::format("'{}' of '{}' is {}", each.name, name, kind_of(*same));
    }
    for (const Candidate& each : all)
        if (find_named(first, each.name) == nullptr)
            return fmt::format("'{}' has '{}', too", name, each.name);
    return "";
}

}  // namespace

OtherFiles compare_files(const std::vector<Candidate>& first, std::span<const fs::path> others) {
    OtherFiles seen{.files = others.size(),
                    .compared = std::min(others.size(), most_compared_files)};
    for (std::size_t i = 0; i < seen.compared; ++i) {
        const std::string difference =
            difference_of(first, others[i * others.size() / seen.compared]);
        if (difference.empty()) ++seen.alike;
        if (seen.difference.empty()) seen.difference = difference;
    }
    return seen;
}

std::string others_text(const OtherFiles& others) {
    if (others.files == 0) return "";
    std::string text =
        fmt::format("{} more {}", grouped(others.files), others.files == 1 ? "file" : "files");
    if (others.compared < others.files)
        text += fmt::format(", of which {} were compared", grouped(others.compared));
    if (others.alike == others.compared)
        return text + (others.files == 1 ? ": it has" : ": all have") + " the same data sets\n";
    return text + fmt::format(": {} of the same data sets; {}\n",
                              others.alike == 0 ? "none" : grouped(others.alike),
                              printable(others.difference));
}

}  // namespace lockstep
