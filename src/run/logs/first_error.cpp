// SPDX-License-Identifier: Apache-2.0
#include "lockstep/run/log_merge.hpp"

#include <algorithm>
#include <set>

namespace lockstep {
namespace {

std::string host_of(int rank, std::span<const RankLogFacts> facts) {
    const auto found = std::ranges::find(facts, rank, &RankLogFacts::rank);
    return found == facts.end() ? "" : found->host;
}

RankError error_in(const LogLine& line, std::span<const RankLogFacts> facts) {
    RankError error{.ranks = line.failed,
                    .code = std::string(line.code),
                    .what = std::string(line.text),
                    .why = std::string(line.why),
                    .fix = std::string(line.fix),
                    .time_s = line.time_s,
                    .blame = blame_of_code(line.code)};
    if (error.ranks.empty()) error.ranks = {line.rank};
    error.host = host_of(error.ranks.front(), facts);
    return error;
}

}  // namespace

RankErrors read_errors(LogMerge& logs, std::span<const RankLogFacts> facts) {
    RankErrors errors;
    std::set<int> met, told;
    while (const LogLine* const line = logs.next()) {
        if (line->kind != LogKind::error) continue;
        const RankError error = error_in(*line, facts);
        if (error.blame == Blame::peer) {
            told.insert(line->rank);
            if (!errors.told) errors.told = error;
            continue;
        }
        met.insert(error.ranks.begin(), error.ranks.end());
        const bool is_surer =
            errors.first && errors.first->blame == Blame::unsure && error.blame == Blame::own;
        if (!errors.first || is_surer) errors.first = error;
    }
    std::ranges::set_difference(told, met, std::back_inserter(errors.followers));
    return errors;
}

}  // namespace lockstep
