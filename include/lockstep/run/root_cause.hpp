// SPDX-License-Identifier: Apache-2.0
/// @file
/// Why a start of a run failed: by its ranks' own errors, else by their flight records.
#pragma once

#include "lockstep/core/json.hpp"
#include "lockstep/run/first_error.hpp"
#include "lockstep/run/run_status.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

/// The first thing that went wrong.
struct RootCause {
    RankError error{};             ///< its code is E660 or E661 where flight records tell it
    bool is_verdict = false;       ///< they do
    std::string trouble{};         ///< "rank dead", ...: with is_verdict
    std::vector<int> followers{};  ///< RankErrors::followers
};

/// Of start `incarnation`; nothing where all is well, or nobody says what is not. Errors: E201.
std::optional<RootCause> root_cause(const fs::path& run, std::int64_t incarnation);

/// Several lines: rank, node, what and why, and what its ranks wrote last.
std::string root_cause_text(const fs::path& run, std::int64_t incarnation, const RootCause& cause);

/// The same for programs.
Json json_of(const RootCause& cause);

/// What the user has seen of a start.
enum class AlreadyTold { logs, cause };

/// What to type next about a run that stands so: another command than the one that showed its
/// logs, or `cause`.
std::string next_command(const RunStatus& status,
                         std::int64_t incarnation,
                         AlreadyTold seen,
                         const std::optional<RootCause>& cause);

}  // namespace lockstep
