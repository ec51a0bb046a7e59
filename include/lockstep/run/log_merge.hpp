// SPDX-License-Identifier: Apache-2.0
/// @file
/// Merges the logs of all ranks of one start: by the clock of rank 0, in little memory.
#pragma once

#include "lockstep/core/error_kind.hpp"
#include "lockstep/core/files.hpp"
#include "lockstep/core/log.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// The origin of a line.
enum class LogKind {
    said,      ///< the rank wrote it into its log
    error,     ///< the rank ends with this error
    captured,  ///< other code wrote it to the rank's stderr
    launcher,  ///< mpirun or srun wrote it, and it is in no rank's log
};

/// LogLine::rank of a line of the launcher.
inline constexpr int no_rank = -1;

/// A line of a rank's log. Its texts are views that are valid until the next line is read. They may
/// contain any bytes, including terminal escapes.
struct LogLine {
    double time_s = 0;             ///< seconds since 1970 on rank 0's clock
    int rank = 0;                  ///< rank of the log, or no_rank
    Level level = Level::info;     ///< severity
    LogKind kind = LogKind::said;  ///< origin
    bool is_for_all = false;       ///< rank 0 wrote it once for all ranks
    std::string_view host;         ///< host of the rank or launcher; "" in logs of older versions
    std::string_view text;         ///< for an error: what happened
    std::string_view alike;  ///< text without this rank's figures, equal on other ranks; or "". For
                             ///< a launcher's line: its text in the rank's own log
    std::string_view code, why, fix{};  ///< parts of an error
    std::vector<int> failed{};  ///< for an error that ranks agreed on: the ranks that met it
};

/// Selection of lines.
struct LogChoice {
    std::optional<std::vector<int>> ranks{};  ///< in order; nothing: all
    std::string node{};                       ///< node of the ranks; "": all
    Level least = Level::debug;
    double since_s = -std::numeric_limits<double>::infinity();  ///< seconds since 1970
    bool with_launcher = false;  ///< includes lines of launcher-HOST.jsonl
    std::uint64_t newest_bytes = std::numeric_limits<std::uint64_t>::max();  ///< limit per log
};

/// Facts about a rank's log that need not all of it.
struct RankLogFacts {
    int rank = 0;
    std::string host{};  ///< "" if nothing was written yet, and in logs of older versions
    double clock_ahead_s = 0, clock_error_s = 0;  ///< ClockEvent
};

/// Limits for reading rank logs.
struct LogLimits {
    std::size_t buffer_bytes = std::size_t{48} << 20;   ///< buffers of all ranks together
    std::size_t longest_line = std::size_t{256} << 10;  ///< longer lines are skipped
    std::size_t most_open =
        0;  ///< most open files; 0: as many as this process may open, less a reserve
};

/// Returns the ranks of a start whose logs are in `folder`, and their nodes. Errors: E201 if none.
std::vector<RankLogFacts> read_log_facts(const fs::path& folder);

/// Reads the lines of a folder's rank-NNNNN.jsonl files in order of time. If wanted, it adds the
/// launcher's lines, on the clock of a rank of its host, with its boxes and blocks as one line
/// each. The lines of one rank stay in their order even if its clock was set back. An incomplete
/// line, which its rank is still writing or which a killed rank left, waits for its end. A line
/// that cannot be parsed is skipped and counted. Files may grow and appear during reading. Beyond
/// `most_open` files each is opened again for every piece. One thread.
class LogMerge {
  public:
    /// Opens the logs. Errors: E201, E202, E402.
    LogMerge(const fs::path& folder, LogChoice choice, const LogLimits& limits = {});

    /// Null state: moved from.
    LogMerge(LogMerge&&) noexcept;
    ~LogMerge();

    /// Returns the next line that is not later than `until_s`; nullptr if there is none (yet).
    const LogLine* next(double until_s = std::numeric_limits<double>::infinity());

    /// For starts that are over: also reads output in rank-NNNNN.stderr that ranks had no time to
    /// log, with the time of their last log line, and an incomplete box of a launcher.
    void take_last_words();

    /// Searches for new lines in logs that were read to their end, and for new logs.
    void look_again();

    /// Returns the number of lines so far that could not be parsed.
    std::uint64_t damaged() const;

  private:
    struct Inside;
    std::unique_ptr<Inside> inside_;
};

/// An error of one or more ranks.
struct RankError {
    std::vector<int> ranks{};  ///< in order; never empty
    std::string host{};        ///< host of the first of them; "" if its log does not have it
    std::string code{}, what{}, why{}, fix{};
    double time_s = 0;         ///< on rank 0's clock
    Blame blame = Blame::own;  ///< the rank that causes it, by its code
};

/// The errors in a start's logs.
struct RankErrors {
    std::optional<RankError> first{};  ///< the first error that blames its own rank; if there is
                                       ///< none, the first unsure one
    std::optional<RankError> told{};   ///< the first error that reports another rank's end
    std::vector<int>
        followers{};  ///< ranks, in order, with only errors that report other ranks' ends
};

/// The first failure of a start.
struct RootCause {
    RankError error{};             ///< its code is E660 or E661 if it comes from flight records
    bool is_verdict = false;       ///< it comes from flight records
    std::string trouble{};         ///< "rank dead", ... if is_verdict, else ""
    std::vector<int> followers{};  ///< RankErrors::followers
};

/// Reads `logs` to their end. `facts`: read_log_facts() of the same folder.
RankErrors read_errors(LogMerge& logs, std::span<const RankLogFacts> facts);

}  // namespace lockstep
