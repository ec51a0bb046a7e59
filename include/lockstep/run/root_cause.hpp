// SPDX-License-Identifier: Apache-2.0
/// @file
/// Why a start of a run failed: by its ranks' own errors, else by their flight records.
#pragma once

#include "lockstep/core/error.hpp"
#include "lockstep/core/json.hpp"
#include "lockstep/run/log_merge.hpp"
#include "lockstep/run/run_status.hpp"
#include "lockstep/run/stragglers.hpp"
#include "lockstep/run/verdict.hpp"

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
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

/// Who, what, why and when, for programs.
Json json_of(const RankError& error);

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

/// One of both, or neither.
struct FirstError {
    std::optional<RootCause> cause{};
    std::vector<Straggler> slow{};  ///< ranks that others wait for, as `report` has them
    std::string next{};             ///< the command to type next
};

/// Of start `incarnation`. Errors: E201.
FirstError first_error(const RunStatus& status, std::int64_t incarnation);

/// A few lines: rank, node, what and why, and what to try.
std::string first_error_text(const RunStatus& status,
                             std::int64_t incarnation,
                             const FirstError& found);

/// The same for programs: `kind` is error, verdict or slow, and missing where nothing is wrong.
Json json_of(const FirstError& found);

/// The wait that is worth a word by what the ranks were told.
double patience_of(std::span<const RankTrace> traces);

/// What the flight records of a start say.
struct Diagnosis {
    std::int64_t incarnation = 0;
    std::vector<RankTrace> traces;
    Verdict verdict;
    bool is_over = false;  ///< nobody is at work in that start any more
    double now_s = 0;
};

/// Of start `incarnation`; 0: the newest. A verdict that ranks gave when they ended their job knows
/// more than what is left of it, and stands in place of a new one. Errors: E201, E202, E222, E663.
Diagnosis diagnosis_of(const fs::path& run, std::int64_t incarnation);

/// Errors: those of read_run_status().
RunStatus status_of_run(const fs::path& run, StatusDepth depth);

/// The records of a launch's ranks, and the callback for their end.
struct LaunchedRun {
    /// Returns the folder of the newest start's flight records; "" if nothing has started.
    std::function<std::filesystem::path()> newest_flight;

    /// Called with the reason why the run failed, if no rank could report it.
    std::function<void(const Error&)> mark_failed;
};

/// Runs `launch` and returns its exit code; 76 if the ranks have given their verdict. Records of
/// earlier starts are ignored. Errors: E660 naming the rank that ended without an error; E612 if
/// memory ran out, by the kernel's counters below `root`; other errors of `launch`.
int explain_end(const LaunchedRun& run,
                const std::function<int()>& launch,
                const std::filesystem::path& root = "/");

}  // namespace lockstep
