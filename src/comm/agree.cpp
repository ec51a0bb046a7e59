// SPDX-License-Identifier: Apache-2.0
#include "lockstep/comm/agree.hpp"

#include <array>
#include <cstdint>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

/// Four texts, each ended by a zero byte; "" is no error.
std::string packed(const Error& error) {
    std::string text;
    for (const std::string& part :
         {error.code(), std::string(error.what()), error.why(), error.fix()})
        text += std::string(part.c_str()) + '\0';
    return text;
}

Error unpacked(const std::string& text) {
    std::array<std::string, 4> parts;
    std::size_t at = 0;
    for (std::string& part : parts) {
        part = text.c_str() + at;
        at += part.size() + 1;
    }
    return Error(parts[0], parts[1], parts[2], parts[3]);
}

std::string named(std::span<const int> ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fold_ranks(ranks));
}

bool any_failed(const Communicator& ranks, bool mine) {
    std::array<std::int64_t, 1> failed = {mine ? 1 : 0};
    ranks.all_reduce_max(failed);
    return failed[0] != 0;
}

/// Who failed, by what they say.
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

std::string ranks_text(const std::vector<int>& same, std::size_t all) {
    if (all == 1) return {};
    if (same.size() < all) return named(same) + " only";
    return "same on " + named(std::span(same).subspan(1));
}

Error with_others(const Error& first, const std::vector<int>& other, const Error& second) {
    const std::string note = fmt::format("{} failed otherwise; rank {}: {}: {}",
                                         named(other),
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
    const auto texts = ranks.all_gather(mine ? packed(*mine) : "");
    const Failures failures = sort_failures(texts);
    const auto error_of = [&](int rank) { return unpacked(texts[static_cast<std::size_t>(rank)]); };
    Error error = error_of(failures.same.front());
    if (!failures.other.empty())
        error = with_others(error, failures.other, error_of(failures.other.front()));
    throw AgreedError(error, ranks_text(failures.same, texts.size()), ranks.is_root());
}

std::string from_root(const Communicator& ranks, const std::function<std::string()>& step) {
    std::string message;
    if (ranks.is_root()) {
        try {
            message = "=" + step();
        } catch (const std::exception& error) {
            message = "!" + packed(as_error(error));
        }
    }
    message = ranks.broadcast(std::move(message));
    const std::string content = message.substr(1);
    if (message.front() == '!') throw AgreedError(unpacked(content), "", ranks.is_root());
    return content;
}

}  // namespace lockstep
