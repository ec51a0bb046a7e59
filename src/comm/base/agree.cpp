// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"

#include "lockstep/core/host_name.hpp"
#include "lockstep/core/record.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {
namespace {

bool any_failed(const Communicator& ranks, bool mine) {
    std::array<std::int64_t, 1> failed = {mine ? 1 : 0};
    ranks.all_reduce_max(failed);
    return failed[0] != 0;
}

/// The ranks that failed, by their errors.
struct Failures {
    std::vector<int> same;   ///< with the text of the lowest failing rank, that one included
    std::vector<int> other;  ///< with another text
};

Failures sort_failures(const std::vector<std::string>& texts) {
    Failures failures;
    for (std::size_t rank = 0; rank < texts.size(); ++rank) {
        if (texts[rank].empty()) continue;
        const bool is_same = failures.same.empty() ||
                             texts[rank] == texts[static_cast<std::size_t>(failures.same.front())];
        (is_same ? failures.same : failures.other).push_back(static_cast<int>(rank));
    }
    return failures;
}

/// " on node1, node2 and 3 more": the nodes of `ranks`; "" where all ranks share one.
std::string nodes_text(const std::vector<int>& ranks, const std::vector<std::string>& host_of) {
    constexpr std::size_t most_named = 4;
    if (std::ranges::adjacent_find(host_of, std::ranges::not_equal_to{}) == host_of.end())
        return {};
    std::vector<std::string> nodes;
    for (const int rank : ranks) {
        const std::string& host = host_of[static_cast<std::size_t>(rank)];
        if (std::ranges::find(nodes, host) == nodes.end()) nodes.push_back(host);
    }
    const std::size_t shown = std::min(nodes.size(), most_named);
    std::string text = fmt::format(
        " on {}", fmt::join(nodes.begin(), nodes.begin() + std::ptrdiff_t(shown), ", "));
    if (shown < nodes.size()) text += fmt::format(" and {} more", nodes.size() - shown);
    return text;
}

std::string same_text(const std::vector<int>& same, const std::vector<std::string>& host_of) {
    const std::size_t all = host_of.size();
    if (all == 1) return {};
    if (same.size() < all) return ranks_text(same) + nodes_text(same, host_of) + " only";
    return "same on " + ranks_text(std::span(same).subspan(1));
}

Error with_others(const Error& first,
                  const std::vector<int>& other,
                  const std::string& nodes,
                  const Error& second) {
    const std::string note = fmt::format("{}{} failed otherwise; rank {}: {}: {}",
                                         ranks_text(other),
                                         nodes,
                                         other.front(),
                                         second.code(),
                                         second.what());
    return Error(first.code(),
                 first.what(),
                 first.why().empty() ? note : first.why() + "\n" + note,
                 first.fix());
}

}  // namespace

void agree_on_failure(const Communicator& ranks, const std::optional<Error>& mine) {
    if (!any_failed(ranks, mine.has_value())) return;
    const auto texts = ranks.all_gather(mine ? error_bytes(*mine) : "");
    const auto host_of = ranks.all_gather(host_name());
    const Failures failures = sort_failures(texts);
    const auto error_of = [&](int rank) {
        return error_from_bytes(texts[static_cast<std::size_t>(rank)]);
    };
    Error error = error_of(failures.same.front());
    if (!failures.other.empty())
        error = with_others(error,
                            failures.other,
                            nodes_text(failures.other, host_of),
                            error_of(failures.other.front()));
    throw AgreedError(error, failures.same, same_text(failures.same, host_of), ranks.is_root());
}

std::string from_root(const Communicator& ranks, const std::function<std::string()>& step) {
    std::string message;
    if (ranks.is_root()) {
        try {
            message = "=" + step();
        } catch (const std::exception& error) {
            message = "!" + error_bytes(as_error(error));
        }
    }
    message = ranks.broadcast(std::move(message));
    const std::string content = message.substr(1);
    if (message.front() == '!')
        throw AgreedError(error_from_bytes(content), {0}, "", ranks.is_root());
    return content;
}

}  // namespace lockstep
