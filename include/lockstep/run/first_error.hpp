// SPDX-License-Identifier: Apache-2.0
/// @file
/// Which of many ranks' errors came first, and is no consequence of another's end.
#pragma once

#include "lockstep/core/error_kind.hpp"
#include "lockstep/run/log_merge.hpp"

#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lockstep {

/// An error that ranks met.
struct RankError {
    std::vector<int> ranks{};  ///< in order; never empty
    std::string host{};        ///< of the first of them; "" where its log does not tell
    std::string code{}, what{}, why{}, fix{};
    double time_s = 0;         ///< on rank 0's clock
    Blame blame = Blame::own;  ///< whose doing it is, by its code
};

/// The errors in a start's logs.
struct RankErrors {
    std::optional<RankError> first{};  ///< of a rank's own; where there is none, of those in doubt
    std::optional<RankError> told{};   ///< the first that tells of another rank's end
    std::vector<int> followers{};      ///< ranks, in order, whose only errors tell of others' ends
};

/// Reads `logs` to their end. `facts`: read_log_facts() of the same folder.
RankErrors read_errors(LogMerge& logs, std::span<const RankLogFacts> facts);

}  // namespace lockstep
