// SPDX-License-Identifier: Apache-2.0
/// @file
/// Finds why a start of a run failed: by its ranks' own errors, else by their flight records.
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

/// Returns the cause for start `incarnation`; nothing if there is no failure or no record of its
/// cause. Errors: E201.
std::optional<RootCause> root_cause(const fs::path& run, std::int64_t incarnation);

/// Returns "rank 1 on n1: rank dead", "ranks 0-3 on n2: error E213".
std::string cause_title(const RootCause& cause);

/// Who, what, why and when, for programs.
Json json_of(const RankError& error);

/// The same for programs.
Json json_of(const RootCause& cause);

/// The output about a start that the user has already seen.
enum class AlreadyTold { logs, cause };

/// Returns the next command for a run in this state; never the one that showed its logs or `cause`.
std::string next_command(const RunStatus& status,
                         std::int64_t incarnation,
                         AlreadyTold seen,
                         const std::optional<RootCause>& cause);

/// The cause of a failure or the slow ranks of a run; may be empty.
struct FirstError {
    std::optional<RootCause> cause{};
    std::vector<Straggler> slow{};  ///< ranks that others wait for, as in `report`
    std::string next{};             ///< the command to type next
};

/// Returns the first error of start `incarnation`. Errors: E201.
FirstError first_error(const RunStatus& status, std::int64_t incarnation);

/// Returns a few lines: rank, node, what and why, and what to try.
std::string first_error_text(const RunStatus& status,
                             std::int64_t incarnation,
                             const FirstError& found);

/// Returns the same for programs: `kind` is error, verdict or slow, missing without failure.
Json json_of(const FirstError& found);

/// Returns the length of a wait that is reported, from the ranks' own settings.
double patience_of(std::span<const RankTrace> traces);

/// The conclusion from the flight records of a start.
struct Diagnosis {
    std::int64_t incarnation = 0;
    std::vector<RankTrace> traces;
    Verdict verdict;
    bool is_over = false;  ///< no rank of that start is alive any more
    double now_s = 0;
};

/// Diagnoses start `incarnation`; 0: the newest. A verdict that ranks wrote when they ended their
/// job replaces a new one, because they knew more. Errors: E201, E202, E222, E663.
Diagnosis diagnosis_of(const fs::path& run, std::int64_t incarnation);

/// Returns the status of a run. Errors: those of read_run_status().
RunStatus status_of_run(const fs::path& run, StatusDepth depth);

/// The records of a launch's ranks, and the callback for their end.
struct LaunchedRun {
    /// Returns the folder of the newest start's flight records; "" if nothing has started.
    std::function<fs::path()> newest_flight;

    /// Called with the reason why the run failed, if no rank could report it.
    std::function<void(const Error&)> mark_failed;
};

/// Runs `launch` and returns its exit code; 76 if the ranks have given their verdict. Records of
/// earlier starts are ignored. Errors: E660 naming the rank that ended without an error; E612 if
/// memory ran out, by the kernel's counters below `root`; other errors of `launch`.
int explain_end(const LaunchedRun& run,
                const std::function<int()>& launch,
                const fs::path& root = "/");

}  // namespace lockstep
