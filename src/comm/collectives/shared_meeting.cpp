// SPDX-License-Identifier: Apache-2.0
#include "shared_meeting.hpp"

#include "lockstep/core/error.hpp"
#include "lockstep/core/numbers.hpp"

#include "base/missing_ranks.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace lockstep {
namespace {

std::string text_of(const SharedCall& call) {
    const auto sized = [&](const char* name) {
        return fmt::format(
            "{} of {} {}", name, grouped(call.bytes / size_of(call.type)), name_of(call.type));
    };
    switch (call.operation) {
        case SharedOperation::all_reduce:
            return sized("all-reduce");
        case SharedOperation::reduce_scatter:
            return sized("reduce-scatter");
        case SharedOperation::all_gather:
            return sized("all-gather");
        case SharedOperation::broadcast:
            return fmt::format(
                "broadcast of {} bytes from rank {}", grouped(call.bytes), call.root);
        case SharedOperation::barrier:
            return "barrier";
        case SharedOperation::lend:
            return fmt::format("lend {} bytes", grouped(call.bytes));
    }
    return "";
}

}  // namespace

SharedMeeting::SharedMeeting(
    std::byte* memory, int rank, int ranks, Patience patience, std::vector<int> names)
    : flags_(memory, rank, ranks, patience), rank_(rank), ranks_(ranks), names_(std::move(names)) {}

void SharedMeeting::begin(const SharedCall& mine) {
    ++calls_;
    note(rank_).calls[turn()] = mine;
    meet();
    for (int rank = 0; rank < ranks_; ++rank)
        if (!call_of(rank).is_same_as(mine)) report_disagreement();
}

void SharedMeeting::meet() {
    const std::uint64_t count = flags_.raise();
    if (flags_.wait(count, deadline_s_)) return;
    throw missing_ranks_error(with_names(flags_.missing(count)), purpose(), deadline_s_);
}

std::string SharedMeeting::purpose() const {
    return fmt::format("{} (call {})", text_of(call_of(rank_)), calls_);
}

std::vector<int> SharedMeeting::with_names(std::vector<int> ranks) const {
    if (names_.empty()) return ranks;
    for (int& rank : ranks) rank = names_[static_cast<std::size_t>(rank)];
    return ranks;
}

/// Every rank says the same: the call that most ranks are in is taken for the right one.
void SharedMeeting::report_disagreement() const {
    const auto ranks_in = [&](const SharedCall& call, bool same) {
        std::vector<int> found;
        for (int rank = 0; rank < ranks_; ++rank)
            if (call_of(rank).is_same_as(call) == same) found.push_back(rank);
        return found;
    };
    int usual = 0;
    for (int rank = 1; rank < ranks_; ++rank)
        if (ranks_in(call_of(rank), true).size() > ranks_in(call_of(usual), true).size())
            usual = rank;
    const std::vector<int> others = ranks_in(call_of(usual), false);
    throw Error("E633",
                fmt::format("rank {} came to '{}' while rank {} came to '{}' (call {})",
                            fold_ranks(with_names(others)),
                            text_of(call_of(others.front())),
                            fold_ranks(with_names(ranks_in(call_of(usual), true))),
                            text_of(call_of(usual)),
                            calls_),
                "all ranks make the same collective calls in the same order",
                "look in both ranks' logs for what made them differ: data, options, versions");
}

}  // namespace lockstep
